"""A generation: all vectors of one fingerprint, one Milvus collection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pipeline.fingerprint import Space
from pipeline.ports import CollectionSpec

# Grows when the collection's fields or indexes change: part of the generation, never altered in place.
SCHEMA_VERSION = 1


class Status(StrEnum):
    """building → serving → draining → retiring → dropped; only ``serving`` answers lookups."""

    BUILDING = "building"
    SERVING = "serving"
    DRAINING = "draining"
    RETIRING = "retiring"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One row of the ``generation`` table. ``emptied_at``: its collection was lost and is being rebuilt.

    ``closing``: its last laggards are embedded in the live lane, before the serving generation's. ``compared``: what
    the last comparison with the vector store found.
    """

    id: int
    fingerprint: str
    space: Space
    rule: str
    schema_version: int
    collection: str
    status: Status
    held: str | None = None
    closing: bool = False
    calibration: int | None = None
    emptied_at: datetime | None = None
    recall_check: dict[str, Any] | None = None
    compared: dict[str, Any] | None = None

    @property
    def spec(self) -> CollectionSpec:
        """What the vector store needs to know of it."""
        return CollectionSpec(
            name=self.collection,
            space=self.space.name,
            dimension=self.space.dimension,
            sparse=self.space.sparse,
            schema_version=self.schema_version,
        )


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of the corpus one generation serves. ``documents_done`` are served in their newest version."""

    documents_done: int
    documents_eligible: int
    parked: int
    tokens_done: int
    tokens_total: int

    @property
    def share(self) -> float:
        """Of the eligible documents; 1.0 when there are none."""
        return self.documents_done / self.documents_eligible if self.documents_eligible else 1.0
