"""Drain: claimed passages are encoded, written, read back, and their versions made live.

While batch n is encoded, group n+1 is claimed and tokenised and group n−1 is written, each in a thread of
its own. The lanes are read again before every batch, so somebody who waits waits for one batch at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.breaker import Breaker
from pipeline.documents import Lane
from pipeline.encode import Encoded, encode_batch, encoder_answers, reason
from pipeline.errors import BadVector, CollectionGone, InfrastructureDown, InvalidInput
from pipeline.fingerprint import Space, passage_key
from pipeline.generation import Generation
from pipeline.packing import pack, slots
from pipeline.ports import Embedder, Role, TokenIds, VectorRow, VectorStore
from pipeline.work import ClaimedPassage, Complete, Group, GroupFigures


# Versions whose hashes a drain remembers; each is a few kilobytes.
_HASHES_KEPT = 64


class Passages(Protocol):
    """Claiming and finishing passages."""

    def claim_passages(
        self, generation: int, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> Group | None: ...
    def claim_suspects(self, generation: int, seconds: float, longest: float) -> Group | None: ...
    def suspects_waiting(self, generations: Sequence[int]) -> bool: ...
    def live_waiting(self, generations: Sequence[int]) -> bool: ...
    def finish(
        self, group: Group, passages: Sequence[ClaimedPassage], figures: GroupFigures
    ) -> list[Complete]: ...
    def flip(self, complete: Complete, missing: Sequence[int], grace: float) -> bool: ...
    def fail_passage(
        self, group: Group, passage: ClaimedPassage, error: str, delay: float, max_errors: int
    ) -> bool: ...


class Holds(Protocol):
    """Keeping and giving back a claim."""

    def extend(self, token: int, seconds: float) -> bool: ...
    def release(self, table: str, token: int, delay: float = 0.0) -> None: ...
    def finish_claim(self, token: int) -> None: ...
    def note_probe(self, generation: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class DrainLimits:
    """Sizes in passages and token slots, times in seconds."""

    batch_tokens: int = 1024
    live_passages: int = 16
    backfill_passages: int = 48
    claim_seconds: float = 120.0
    claim_longest_seconds: float = 900.0
    flip_grace_seconds: float = 10.0
    retry_base_seconds: float = 5.0
    max_errors: int = 5


@dataclass(kw_only=True)
class _Load:
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


class Drain:
    """One worker's loop over the passages of the generations it can produce."""

    def __init__(
        self,
        passages: Passages,
        holds: Holds,
        store: VectorStore,
        embedder_for: Callable[[Space], Embedder | None],
        breaker: Breaker,
        limits: DrainLimits,
    ) -> None:
        self._passages = passages
        self._holds = holds
        self._store = store
        self._embedder_for = embedder_for
        self._breaker = breaker
        self._limits = limits
        self._turn = 0
        self._after: dict[tuple[int, Lane], str] = {}
        self._held: dict[int, float] = {}
        self._hashes: dict[tuple[int, int, int], dict[str, str]] = {}

    def run(self, generations: Sequence[Generation], more_time: Callable[[], bool]) -> int:
        """Works until nothing is pending, the time is up or the breaker opens; returns passages written.

        ``generations`` in the order of their claim to the encoder: serving, building, draining.
        """
        pairs = [(g, self._embedder_for(g.space)) for g in generations]
        mine = [(g, e) for g, e in pairs if e is not None]
        written = 0
        if not mine or self._breaker.open:
            return 0
        try:
            with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(1) as writer:
                written = self._loop(mine, more_time, ahead, writer)
        except InfrastructureDown:
            self._breaker.failed()
            self._give_all_back()
            raise
        except CollectionGone:
            # Void when a retired generation was dropped under us; a lost collection is made again by the sweep.
            self._give_all_back(self._limits.retry_base_seconds)
            return written
        except BaseException:
            # Nobody knows whose fault this was: as after a lost worker the groups come back in halves, but at once.
            self._let_lapse()
            raise
        self._breaker.succeeded()
        return written

    def _loop(
        self,
        mine: list[tuple[Generation, Embedder]],
        more_time: Callable[[], bool],
        ahead: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
    ) -> int:
        written = 0
        while True:
            written += self._pipeline(mine, more_time, ahead, writer)
            # What a lost worker held is tried with nothing else in hand: if it kills this one, it dies alone.
            suspects = self._claim_suspects(mine)
            if suspects is None:
                return written
            written += self._alone(suspects)
            if not more_time():
                return written

    def _pipeline(
        self,
        mine: list[tuple[Generation, Embedder]],
        more_time: Callable[[], bool],
        ahead: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
    ) -> int:
        """Until nothing is pending, the time is up or suspects wait; holds nothing when it returns."""
        written = 0
        writing: Future[int] | None = None
        coming: Future[_Load | None] = ahead.submit(self._next, mine)
        while (load := coming.result()) is not None:
            coming = ahead.submit(self._next, mine) if more_time() else ahead.submit(lambda: None)
            for batch in pack([len(i) for i in load.ids], self._limits.batch_tokens):
                if load.group.passages[0].lane is Lane.BACKFILL:
                    written += self._serve_live(mine)
                self._encode(load, batch)
            written += writing.result() if writing else 0
            writing = writer.submit(self._store_load, load)
        return written + (writing.result() if writing else 0)

    def _serve_live(self, mine: list[tuple[Generation, Embedder]]) -> int:
        """Somebody waits: their passages go before the next backfill batch."""
        written = 0
        while self._passages.live_waiting([g.id for g, _ in mine]):
            load = self._claim(mine, (Lane.LIVE,))
            if load is None:
                break
            written += self._alone(load)
        return written

    def _alone(self, load: _Load) -> int:
        """One group from beginning to end, in this thread."""
        for batch in pack([len(i) for i in load.ids], self._limits.batch_tokens):
            self._encode(load, batch)
        return self._store_load(load)

    def _next(self, mine: list[tuple[Generation, Embedder]]) -> _Load | None:
        self._turn += 1
        if self._turn % 4 == 2 and self._passages.suspects_waiting([g.id for g, _ in mine]):
            return None
        # One claim in eight starts with the backfill lane: live work never starves it.
        order = (Lane.BACKFILL, Lane.LIVE) if self._turn % 8 == 0 else (Lane.LIVE, Lane.BACKFILL)
        return self._claim(mine, order)

    def _claim(self, mine: list[tuple[Generation, Embedder]], lanes: Iterable[Lane]) -> _Load | None:
        limits = self._limits
        times = (limits.claim_seconds, limits.claim_longest_seconds)
        for lane in lanes:
            for generation, embedder in mine:
                size = limits.live_passages if lane is Lane.LIVE else limits.backfill_passages
                key = (generation.id, lane)
                group = self._passages.claim_passages(generation.id, lane, size, *times, self._after.get(key, ""))
                if group is not None:
                    self._after[key] = group.after
                    return self._open(group, generation, embedder)
        return None

    def _claim_suspects(self, mine: list[tuple[Generation, Embedder]]) -> _Load | None:
        for generation, embedder in mine:
            group = self._passages.claim_suspects(
                generation.id, self._limits.claim_seconds, self._limits.claim_longest_seconds
            )
            if group is not None:
                # The probe is the other success that lets a lone item be blamed when nothing else is pending.
                if encoder_answers(embedder):
                    self._holds.note_probe(generation.id)
                return self._open(group, generation, embedder)
        return None

    def _open(self, group: Group, generation: Generation, embedder: Embedder) -> _Load:
        self._held[group.token] = time.monotonic()
        load = _Load(group=group, generation=generation, embedder=embedder)
        copied = self._copies(load)
        load.todo = [p for p in group.passages if p.id not in copied]
        try:
            load.ids = embedder.tokenize([p.text for p in load.todo], Role.PASSAGE)
        except Exception:  # one of them is to blame: find out which
            self._tokenize_one_by_one(load)
        return load

    def _tokenize_one_by_one(self, load: _Load) -> None:
        todo, load.todo, load.ids = load.todo, [], []
        for passage in todo:
            try:
                load.ids += load.embedder.tokenize([passage.text], Role.PASSAGE)
                load.todo.append(passage)
            except Exception as error:  # counted against this passage alone
                load.failed.append((passage, reason(error)))

    def _copies(self, load: _Load) -> set[int]:
        """Unchanged passages take the vector of the live version: an appended document embeds only what is new."""
        known = {
            (p.document, p.live_version): self._live_hashes(load.generation, p)
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
                load.rows.append(_row(p, Encoded(dense=kept.dense, sparse=kept.sparse)))
                load.written.append(p)
        return set(same)

    def _live_hashes(self, generation: Generation, passage: ClaimedPassage) -> dict[str, str]:
        """hash → key of the version that serves; read once per version, not once per group."""
        assert passage.live_version is not None
        name = (generation.id, passage.document, passage.live_version)
        if name not in self._hashes:
            keys = [passage_key(passage.document, passage.live_version, i) for i in range(passage.live_total or 0)]
            if len(self._hashes) >= _HASHES_KEPT:
                self._hashes.pop(next(iter(self._hashes)))
            self._hashes[name] = {r.hash: r.key for r in self._store.fetch(generation.spec, keys).values()}
        return self._hashes[name]

    def _encode(self, load: _Load, batch: Sequence[int]) -> None:
        started = time.monotonic()
        for index, outcome in zip(batch, encode_batch(load.embedder, [load.ids[i] for i in batch]), strict=True):
            passage = load.todo[index]
            if outcome.error is None:
                load.rows.append(_row(passage, outcome))
                load.written.append(passage)
            else:
                load.failed.append((passage, outcome.error))
        load.slots += slots([len(i) for i in load.ids], [batch])
        load.seconds += time.monotonic() - started
        self._extend_held()

    def _extend_held(self) -> None:
        """Progress was made, so the claims live on; a worker that hangs makes none and loses them."""
        now = time.monotonic()
        for token, since in list(self._held.items()):
            if now - since > self._limits.claim_seconds / 4:
                self._held[token] = now
                self._holds.extend(token, self._limits.claim_seconds)

    def _store_load(self, load: _Load) -> int:
        group = load.group
        try:
            load.written = self._upsert(load, load.rows, load.written)
        except CollectionGone:
            # A retired generation was dropped under us: its work is void. A lost collection is found by the sweep.
            self._give_back(group.token, delay=self._limits.retry_base_seconds)
            return 0
        encoded = {p.id for p in load.todo}
        copied = sum(p.id not in encoded for p in load.written)
        figures = GroupFigures(
            passages=len(load.written),
            copied=copied,
            tokens=sum(len(i) for i in load.ids),
            slots=load.slots,
            seconds=load.seconds,
        )
        for complete in self._passages.finish(group, load.written, figures):
            confirm(self._passages, self._store, load.generation, complete, self._limits.flip_grace_seconds)
        for passage, error in load.failed:
            self._passages.fail_passage(
                group, passage, error, self._limits.retry_base_seconds, self._limits.max_errors
            )
        self._held.pop(group.token, None)
        self._holds.finish_claim(group.token)
        return len(load.written)

    def _upsert(
        self, load: _Load, rows: Sequence[VectorRow], passages: list[ClaimedPassage]
    ) -> list[ClaimedPassage]:
        """Writes rows, bisecting down to the one that the store refuses; returns the passages written."""
        try:
            self._store.upsert(load.generation.spec, rows)
        except (CollectionGone, InfrastructureDown):
            raise
        except Exception as error:
            if len(rows) > 1:
                half = len(rows) // 2
                return self._upsert(load, rows[:half], passages[:half]) + self._upsert(
                    load, rows[half:], passages[half:]
                )
            # Ours to refuse are bad rows; whatever else the store says may be about itself: ask it to store something.
            if not isinstance(error, BadVector | InvalidInput) and not store_answers(self._store):
                raise InfrastructureDown(f"the vector store refuses everything: {error}", part="milvus") from error
            load.failed.append((passages[0], reason(error)))
            return []
        return passages

    def _give_all_back(self, delay: float = 0.0) -> None:
        for token in list(self._held):
            self._give_back(token, delay)

    def _let_lapse(self) -> None:
        for token in list(self._held):
            self._held.pop(token, None)
            try:
                self._holds.extend(token, 0.0)
            except InfrastructureDown:
                return  # it lapses by itself, later

    def _give_back(self, token: int, delay: float = 0.0) -> None:
        self._held.pop(token, None)
        try:
            self._holds.release("passage", token, delay)
        except InfrastructureDown:
            # The database is what is down: the claim lapses by itself.
            return


def store_answers(store: VectorStore) -> bool:
    """The independent probe: are known vectors still stored and found?"""
    try:
        store.admin().probe_metric()
    except Exception:  # whatever it is, the store does not answer as it must
        return False
    return True


def confirm(
    passages: Passages, store: VectorStore, generation: Generation, complete: Complete, grace: float
) -> bool:
    """Reads all keys of a complete version back with Strong consistency, then lets it serve."""
    keys = [passage_key(complete.document, complete.version, i) for i in range(complete.total)]
    found = store.fetch(generation.spec, keys)
    missing = [i for i, key in enumerate(keys) if key not in found]
    return passages.flip(complete, missing, grace)


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
