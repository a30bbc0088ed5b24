"""What PostgreSQL, the truth, says to a recall: the port and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from pipeline.live import ServingRow

RawEvents: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """Which episodes a recall may see. ``user_id``, ``agent_id``: takes part in at least one event."""

    tenant: str
    domain: str | None = None
    user_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class LiveEpisode:
    """An episode that may be recalled now; ``prev_version`` only while it still is acceptable."""

    document: int
    key: str
    title: str
    domain: str
    source: str
    live_version: int
    prev_version: int | None

    @property
    def versions(self) -> frozenset[int]:
        """Those that may be shown."""
        return frozenset(v for v in (self.live_version, self.prev_version) if v is not None)


@dataclass(frozen=True, kw_only=True)
class Said:
    """One live version that says a string to the letter."""

    string: str
    document: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Leased:
    """Episodes held for one caller, best first, as (document, version)."""

    lease: str
    deadline: datetime
    versions: tuple[tuple[int, int], ...]


class Episodes(Protocol):
    """What a recall reads and holds. Every method raises InfrastructureDown when PostgreSQL is gone."""

    def serving(self, tenant: str) -> ServingRow | None:
        """Who serves now; None before the first generation."""
        ...

    def live(
        self, generation: int, documents: Sequence[int], within: Narrowing, grace: float, lease: str | None = None
    ) -> dict[int, LiveEpisode]:
        """Those of ``documents`` that may be recalled now: not deleted, not consumed, held by no other lease."""
        ...

    def saying(
        self, generation: int, tokens: Sequence[str], phrases: Sequence[str], within: Narrowing, most: int
    ) -> list[Said]:
        """Who says these strings, up to ``most`` and one more of each: more than ``most`` single nobody out."""
        ...

    def events(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], RawEvents]:
        """The stored events of (document, version) pairs; missing pairs are left out."""
        ...

    def lease(
        self,
        generation: int,
        ranked: Sequence[int],
        most: int,
        within: Narrowing,
        session_id: str | None,
        seconds: float,
    ) -> Leased | None:
        """Holds the first ``most`` of ``ranked`` that nobody holds; None when all of them are held."""
        ...

    def acknowledge(self, tenant: str, lease: str) -> tuple[str, ...]:
        """Consumes what the lease holds; returns the keys.

        Raises Conflict, and gives everything back, when it has lapsed, was settled before, or a version moved on.
        """
        ...

    def release(self, tenant: str, lease: str) -> tuple[str, ...]:
        """Gives back what the lease holds; returns the keys. Raises Conflict when it holds nothing any more."""
        ...
