"""The recall check: does a generation that wants to serve find what it should, compared with the one that serves?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.fingerprint import Space
from pipeline.generation import Generation
from pipeline.ports import Embedder, QueryVector, Role, Scope, VectorStore

TOP = 10
# Probes that are run whatever time it takes: with fewer a share says nothing.
ENOUGH = 20


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
    more_time: Callable[[], bool] = lambda: True,
) -> RecallCheck:
    """Runs the probes on both generations, each with queries of its own space, dense leg only.

    Once ``more_time`` says no, the check stands on the probes that were run (``ENOUGH`` at least): on a busy machine
    a smaller sample is worth more than a check that the task's time limit ends again and again.
    """
    ours, theirs = _ranking(store, candidate, embedder_for), _ranking(store, serving, embedder_for)
    found: list[list[int]] = []
    reference: list[list[int]] = []
    for probe in probes:
        if not more_time() and len(found) >= ENOUGH:
            break
        found.append(ours(probe) if ours else [])
        reference.append(theirs(probe) if theirs else [])
    probes = probes[: len(found)]
    return RecallCheck(
        probes=len(probes),
        self_retrieval=_self_retrieval(probes, found),
        serving_self_retrieval=_self_retrieval(probes, reference) if theirs else None,
        overlap=_overlap(found, reference) if ours and theirs and found else None,
    )


def _overlap(found: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> float:
    shares = [len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(found, reference, strict=True)]
    return sum(shares) / len(shares)


def _self_retrieval(probes: Sequence[Probe], found: Sequence[Sequence[int]]) -> float:
    hits = [ranked[:1] == [p.document] for p, ranked in zip(probes, found, strict=True)]
    return sum(hits) / len(hits) if hits else 0.0


def _ranking(
    store: VectorStore, generation: Generation | None, embedder_for: Callable[[Space], Embedder | None]
) -> Callable[[Probe], list[int]] | None:
    """What gives the first ten documents for a probe, best first; None when this process cannot encode for it."""
    embedder = None if generation is None else embedder_for(generation.space)
    if generation is None or embedder is None:
        return None

    def ranked(probe: Probe) -> list[int]:
        encoded = embedder.encode(embedder.tokenize([probe.text], Role.QUERY))
        query = QueryVector(space=generation.space.name, dense=encoded.dense[0])
        legs = store.search(generation.spec, query, "", Scope(tenant=probe.tenant, kind=probe.kind), TOP * 5)
        return list(dict.fromkeys(h.document for h in legs.dense))[:TOP]

    return ranked
