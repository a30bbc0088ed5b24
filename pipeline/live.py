"""What PostgreSQL, the truth, says to a lookup: the port and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pipeline.answers import Invocation
from pipeline.content import Excerpt
from pipeline.generation import Generation


@dataclass(frozen=True, kw_only=True)
class ServingRow:
    """The serving generation, its fitted map (``calibration.model``) and the tenant's change counter for L0."""

    generation: Generation
    calibration: Mapping[str, Any] | None
    change: int


@dataclass(frozen=True, kw_only=True)
class LiveDocument:
    """A document that may be served; ``prev_version`` only while it still is acceptable."""

    document: int
    key: str
    title: str
    domain: str
    source: str
    updated_at: datetime
    live_version: int
    prev_version: int | None
    when_to_retrieve: str = ""

    @property
    def versions(self) -> frozenset[int]:
        """Those that may be shown."""
        return frozenset({self.live_version, self.prev_version} - {None})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Liveness:
    """The documents that may be served, by id, and how many of the domain are not searchable yet."""

    documents: Mapping[int, LiveDocument]
    pending: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """A stretch of one version's body: characters ``start`` … ``start + length``."""

    document: int
    version: int
    start: int
    length: int


class Lookups(Protocol):
    """What a lookup reads from the ledger. Every method raises InfrastructureDown when PostgreSQL is gone."""

    def serving(self, tenant: str) -> ServingRow | None:
        """Who serves now; None before the first generation."""
        ...

    def liveness(
        self,
        tenant: str,
        generation: int,
        documents: Sequence[int],
        *,
        keys: Sequence[str],
        domain: str | None,
        metadata: Mapping[str, Any],
        grace: float,
    ) -> Liveness:
        """Which of these documents, by id or key, may be served to this tenant now."""
        ...

    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]:
        """The texts of those places by (document, version)."""
        ...


class Invocations(Protocol):
    """Where rows of ``tool_invocation`` go."""

    def put(self, invocation: Invocation) -> None:
        """Takes the row; waits while too many are unwritten, and never drops one."""
        ...
