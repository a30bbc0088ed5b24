"""Passages become documents, two legs become one order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from pipeline.ports import Hit, LegResults

# Measured over five corpora against rank fusion: 0.983 / 0.970 recall@1 (research, §8). See ops/bench.
DENSE_WEIGHT = 0.7
LEXICAL_WEIGHT = 0.3
RANK_CONSTANT = 60


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One version of one document with its passages found, best first.

    ``dense`` and ``lexical`` are its best passage's scores in each leg, None where the leg missed it;
    ``score`` is comparable within one question only. A document that only L0 names has no hits.
    """

    document: int
    version: int
    hits: tuple[Hit, ...] = ()
    dense: float | None = None
    lexical: float | None = None
    score: float = 0.0


def fold(legs: LegResults) -> list[Candidate]:
    """All hits of both legs, merged by passage and grouped by document and version."""
    merged: dict[str, Hit] = {}
    for hit in (*legs.dense, *(legs.lexical or ())):
        known = merged.get(hit.key)
        if known is None:
            merged[hit.key] = hit
        else:
            merged[hit.key] = replace(
                known,
                dense=known.dense if hit.dense is None else hit.dense,
                lexical=known.lexical if hit.lexical is None else hit.lexical,
            )
    groups: dict[tuple[int, int], list[Hit]] = defaultdict(list)
    for hit in merged.values():
        groups[hit.document, hit.version].append(hit)
    return [_candidate(document, version, hits) for (document, version), hits in groups.items()]


def newest(candidates: Iterable[Candidate], acceptable: Mapping[int, frozenset[int]]) -> list[Candidate]:
    """One candidate a document: its newest version among those that may be served; the others are dropped."""
    best: dict[int, Candidate] = {}
    for candidate in candidates:
        if candidate.version not in acceptable.get(candidate.document, frozenset()):
            continue
        known = best.get(candidate.document)
        if known is None or candidate.version > known.version:
            best[candidate.document] = candidate
    return list(best.values())


def fuse(
    candidates: Sequence[Candidate], *, trusted: bool = True, dense_weight: float = DENSE_WEIGHT
) -> list[Candidate]:
    """The candidates by fused score, best first, each with its ``score``.

    Standardised scores (0.7 dense + 0.3 lexical unless told otherwise); by ranks when a backend's scores cannot be ``trusted``.
    A leg that missed a candidate counts as that leg's worst score found; a leg without scores counts nothing.
    """
    dense = [c.dense for c in candidates]
    lexical = [c.lexical for c in candidates]
    parts = (_standard(dense), _standard(lexical)) if trusted else (_by_rank(dense), _by_rank(lexical))
    weights = (dense_weight, 1.0 - dense_weight) if trusted else (1.0, 1.0)
    scored = [replace(c, score=weights[0] * d + weights[1] * w) for c, d, w in zip(candidates, *parts, strict=True)]
    return sorted(scored, key=lambda c: (-c.score, c.document))


def _candidate(document: int, version: int, hits: Sequence[Hit]) -> Candidate:
    if len(hits) == 1:
        hit = hits[0]
        return Candidate(document=document, version=version, hits=(hit,), dense=hit.dense, lexical=hit.lexical)
    ordered = _order(hits)
    return Candidate(
        document=document,
        version=version,
        hits=tuple(ordered),
        dense=max((h.dense for h in hits if h.dense is not None), default=None),
        lexical=max((h.lexical for h in hits if h.lexical is not None), default=None),
    )


def _order(hits: Sequence[Hit]) -> list[Hit]:
    scores = [
        DENSE_WEIGHT * d + LEXICAL_WEIGHT * w
        for d, w in zip(_standard([h.dense for h in hits]), _standard([h.lexical for h in hits]), strict=True)
    ]
    return [h for _, _, h in sorted(zip(scores, (h.ordinal for h in hits), hits, strict=True), key=_best_first)]


def _best_first(scored: tuple[float, int, Hit]) -> tuple[float, int]:
    return (-scored[0], scored[1])


def _standard(values: Sequence[float | None]) -> list[float]:
    found = [v for v in values if v is not None]
    if not found:
        return [0.0] * len(values)
    worst = min(found)
    filled = [worst if v is None else v for v in values]
    # Not statistics.pstdev: it counts in exact fractions and costs milliseconds here.
    mean = sum(filled) / len(filled)
    spread = sqrt(sum((v - mean) ** 2 for v in filled) / len(filled))
    if spread < 1e-9:
        return [0.0] * len(values)
    return [(v - mean) / spread for v in filled]


def _by_rank(values: Sequence[float | None]) -> list[float]:
    order = sorted((i for i, v in enumerate(values) if v is not None), key=lambda i: -(values[i] or 0.0))
    ranks = {i: 1.0 / (RANK_CONSTANT + rank) for rank, i in enumerate(order, start=1)}
    return [ranks.get(i, 0.0) for i in range(len(values))]
