"""The parts of recall, built from the process's settings and parts."""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.adapters.ledger.recalls import RecallLedger
from pipeline.live import Invocations
from pipeline.ports import VectorStore
from pipeline.query_vectors import QueryVectors
from pipeline.recall import RecallLimits, RecallParts
from pipeline.relevance import Thresholds
from pipeline.settings import Settings


def recall_parts(
    settings: Settings, engine: Engine, vectors: VectorStore, queries: QueryVectors, invocations: Invocations
) -> RecallParts:
    """What every tenant's recalls of this process share."""
    thresholds = Thresholds(
        max_l2=settings.max_l2_distance,
        highly_relevant=settings.highly_relevant_threshold,
        reference=settings.reference_threshold,
    )
    return RecallParts(
        ledger=RecallLedger(engine),
        vectors=vectors,
        queries=queries,
        invocations=invocations,
        limits=RecallLimits(
            thresholds=thresholds,
            flip_grace_seconds=settings.flip_grace_seconds,
            lease_seconds=settings.recall_lease_seconds,
            max_query_chars=settings.max_query_chars,
        ),
    )
