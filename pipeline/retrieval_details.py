"""``retrieval_details`` of one lookup: what people need to see why it answered so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.answers import LookupAnswer, LookupRequest
from pipeline.assess import Assessed
from pipeline.relevance import similarity, squared_l2
from pipeline.search import Searched


def retrieval_details(
    request: LookupRequest,
    searched: Searched,
    assessed: Sequence[Assessed],
    live: int,
    answer: LookupAnswer,
    calibration: str,
) -> dict[str, Any]:
    """For people: the fields of the original, and how many there were at each stage."""
    distances = [round(squared_l2(h.dense), 4) for h in searched.legs.dense if h.dense is not None]
    top = min(distances, default=None)
    named = [a for a in assessed if a.named]
    return {
        "l0_titles": [a.document.title for a in named],
        "l1_scores": distances[:10],
        "l1_top_score": top,
        "l1_top_similarity": None if top is None else round(similarity(top), 4),
        "relevance_level": answer.relevance_level,
        "completeness_hint": answer.completeness_hint,
        "retrieved_domains": list(answer.retrieved_domains_this_session),
        "dedup_reason": answer.deduped[0].reason if answer.deduped else None,
        "metric": "l2_squared",
        "keywords": [k.text for k in searched.named.keywords],
        "candidates": [_scores(a) for a in assessed],
        "stages": {
            "l0_documents": len(searched.named.documents),
            "dense_passages": len(searched.legs.dense),
            "lexical_passages": None if searched.legs.lexical is None else len(searched.legs.lexical),
            "live_documents": live,
            "answers": sum(a.level is not None for a in assessed),
            "handed_out": (answer.primary is not None) + len(answer.supplement),
            "below_floor": answer.not_shown.below_floor,
        },
        "calibration": calibration,
        "action_memory": answer.action_memory,
        "degraded": list(searched.degraded),
        "domain": request.domain,
        "missing_aspect": request.missing_aspect,
        "refetch": list(request.refetch),
    }


def _scores(one: Assessed) -> dict[str, Any]:
    return {
        "document": one.document.document,
        "version": one.candidate.version,
        "key": one.document.key,
        "level": one.level,
        "relevance": round(one.relevance, 4),
        "features": {k: round(v, 4) for k, v in one.features.items()},
    }
