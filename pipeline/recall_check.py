"""The recall check: does a generation that wants to serve find what it should, compared with the one that serves?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.fingerprint import Space
from pipeline.generation import Generation
from pipeline.ports import Embedder, QueryVector, Role, Scope, VectorStore

TOP = 10


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A title or heading and the document it belongs to."""

    tenant: str
    kind: str
    document: int
    text: str


@dataclass(frozen=True, kw_only=True)
class RecallCheck:
    """``self_retrieval``: share of probes whose own document is the first dense hit. ``overlap``: mean overlap of
    the first ten documents with those of the serving generation. None: nothing serves, or its model is gone.
    """

    probes: int
    self_retrieval: float
    serving_self_retrieval: float | None
    overlap: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def verdict(self, min_self_retrieval: float) -> str | None:
        """Why the generation must not serve, or None. An empty corpus proves nothing and holds nothing.

        ``min_self_retrieval`` is a share of what the serving generation reaches: how well titles name their documents
        differs between corpora, and what serves today is what must not get much worse.
        """
        serving = self.serving_self_retrieval
        required = min_self_retrieval * (1.0 if serving is None else serving)
        if self.probes == 0 or self.self_retrieval >= required:
            return None
        now = "" if serving is None else f", {serving:.2f} with the vectors that serve now"
        return (
            f"recall check: only {self.self_retrieval:.2f} of {self.probes} titles find their own document{now}"
            f" (at least {required:.2f} are required); swap by hand if that is meant"
        )


def check_recall(
    probes: Sequence[Probe],
    store: VectorStore,
    candidate: Generation,
    serving: Generation | None,
    embedder_for: Callable[[Space], Embedder | None],
    progress: Callable[[], object] = lambda: None,
) -> RecallCheck:
    """Runs the probes on both generations, each with queries of its own space, dense leg only.

    ``progress`` is called after every search: whoever watches sees that it goes on.
    """
    ours = _ranked(probes, store, candidate, embedder_for, progress)
    theirs = None if serving is None else _ranked(probes, store, serving, embedder_for, progress)
    overlap = None
    if theirs is not None and ours is not None and probes:
        overlap = sum(len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(ours, theirs, strict=True)) / len(probes)
    return RecallCheck(
        probes=len(probes),
        self_retrieval=_self_retrieval(probes, ours or []),
        serving_self_retrieval=None if theirs is None else _self_retrieval(probes, theirs),
        overlap=overlap,
    )


def _self_retrieval(probes: Sequence[Probe], ranked: Sequence[Sequence[int]]) -> float:
    if not probes or not ranked:
        return 0.0
    return sum(found[:1] == [p.document] for p, found in zip(probes, ranked, strict=True)) / len(probes)


def _ranked(
    probes: Sequence[Probe],
    store: VectorStore,
    generation: Generation,
    embedder_for: Callable[[Space], Embedder | None],
    progress: Callable[[], object],
) -> list[list[int]] | None:
    """For each probe the first ten documents, best first; None when this process cannot encode for the generation."""
    embedder = embedder_for(generation.space)
    if embedder is None:
        return None
    found = []
    for probe in probes:
        encoded = embedder.encode(embedder.tokenize([probe.text], Role.QUERY))
        query = QueryVector(space=generation.space.name, dense=encoded.dense[0])
        legs = store.search(generation.spec, query, "", Scope(tenant=probe.tenant, kind=probe.kind), TOP * 5)
        found.append(list(dict.fromkeys(h.document for h in legs.dense))[:TOP])
        progress()
    return found
