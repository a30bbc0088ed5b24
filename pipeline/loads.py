"""A claimed group on its way to the store: what is copied, what is encoded, what came out."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.encode import Encoded, reason
from pipeline.fingerprint import passage_key
from pipeline.generation import Generation
from pipeline.ports import Embedder, Role, TokenIds, VectorRow, VectorStore
from pipeline.work import ClaimedPassage, Group

# Versions whose hashes a drain remembers; each is a few kilobytes.
_HASHES_KEPT = 64


@dataclass(kw_only=True)
class Load:
    """A claimed group on its way: what to copy, what to encode, what came out."""

    group: Group
    generation: Generation
    embedder: Embedder
    ids: list[TokenIds] = field(default_factory=list)
    todo: list[ClaimedPassage] = field(default_factory=list)
    rows: list[VectorRow] = field(default_factory=list)
    written: list[ClaimedPassage] = field(default_factory=list)
    failed: list[tuple[ClaimedPassage, str]] = field(default_factory=list)
    slots: int = 0
    seconds: float = 0.0

    def take(self, passage: ClaimedPassage, encoded: Encoded) -> None:
        """One outcome: a row to write, or a reason why there is none."""
        if encoded.error is not None:
            self.failed.append((passage, encoded.error))
            return
        self.rows.append(_row(passage, encoded))
        self.written.append(passage)


class LiveVectors:
    """The vectors of versions that serve: unchanged passages of a new version take them over."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._hashes: dict[tuple[int, int, int], dict[str, str]] = {}

    def copy_into(self, load: Load) -> None:
        """Copies what it can and leaves the rest to do: an appended document embeds only what is new."""
        known = {
            (p.document, p.live_version): self._of(load.generation, p)
            for p in {p.document: p for p in load.group.passages if p.live_version is not None}.values()
        }
        same = {
            p.id: key
            for p in load.group.passages
            if (key := known.get((p.document, p.live_version), {}).get(p.hash)) is not None
        }
        stored = self._store.fetch(load.generation.spec, sorted(set(same.values())), vectors=True) if same else {}
        for p in load.group.passages:
            kept = stored.get(same.get(p.id, ""))
            if kept is None:
                same.pop(p.id, None)
            else:
                load.take(p, Encoded(dense=kept.dense, sparse=kept.sparse))
        load.todo = [p for p in load.group.passages if p.id not in same]

    def _of(self, generation: Generation, passage: ClaimedPassage) -> dict[str, str]:
        """hash → key of the version that serves; read once per version, not once per group."""
        assert passage.live_version is not None
        name = (generation.id, passage.document, passage.live_version)
        if name not in self._hashes:
            keys = [passage_key(passage.document, passage.live_version, i) for i in range(passage.live_total or 0)]
            if len(self._hashes) >= _HASHES_KEPT:
                self._hashes.pop(next(iter(self._hashes)))
            self._hashes[name] = {r.hash: r.key for r in self._store.fetch(generation.spec, keys).values()}
        return self._hashes[name]


def tokenize(load: Load) -> None:
    """Token ids of what is to be encoded; a text that cannot be tokenised fails alone."""
    try:
        load.ids = load.embedder.tokenize([p.text for p in load.todo], Role.PASSAGE)
    except Exception:  # one of them is to blame: find out which
        _tokenize_one_by_one(load)


def _tokenize_one_by_one(load: Load) -> None:
    todo, load.todo, load.ids = load.todo, [], []
    for passage in todo:
        try:
            load.ids += load.embedder.tokenize([passage.text], Role.PASSAGE)
            load.todo.append(passage)
        except Exception as error:  # counted against this passage alone
            load.failed.append((passage, reason(error)))


def _row(passage: ClaimedPassage, encoded: Encoded) -> VectorRow:
    assert encoded.dense is not None
    return VectorRow(
        key=passage_key(passage.document, passage.version, passage.ordinal),
        tenant=passage.tenant,
        kind=passage.kind,
        domain=passage.domain,
        document=passage.document,
        version=passage.version,
        ordinal=passage.ordinal,
        hash=passage.hash,
        start=passage.start,
        end=passage.end,
        headings=passage.headings,
        text=passage.text,
        dense=encoded.dense,
        sparse=encoded.sparse,
    )
