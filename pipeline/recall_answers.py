"""What a recall is asked and what it answers. Frozen values; the names are those of ``POST /v1/recall``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.relevance import Level


@dataclass(frozen=True, kw_only=True)
class RecallRequest:
    """One question to memory. ``cursor``: goes on where an answer ended, instead of a question."""

    query: str = ""
    session_id: str | None = None
    top_k: int = 3
    domain: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    consume: bool = False
    preview: bool = False
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecalledEpisode:
    """One episode, or the page of it that this answer holds.

    ``relevance_level`` None: too weak to be called an answer. ``events``: in their own order, each with its original
    time; ``first_event`` is the index of the first one here among ``event_count``. ``matched_events``: the indices
    of those that say what was asked for. ``media``: MIME type → how many, over the whole episode.
    """

    key: str
    title: str
    domain: str
    version: int
    at: str
    source: str
    summary: str
    relevance_level: Level | None
    event_count: int
    first_event: int
    matched_events: tuple[int, ...]
    media: Mapping[str, int]
    events: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A hold on the answer's episodes: acknowledge it before ``deadline`` (then they are gone) or release it."""

    lease: str
    deadline: datetime
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RecallAnswer:
    """``text``: for a prompt, stored words escaped and marked as data. ``cursor``: where more events are."""

    invocation_id: str
    text: str
    episodes: tuple[RecalledEpisode, ...] = ()
    lease: Lease | None = None
    cursor: str | None = None
    degraded: tuple[str, ...] | None = field(default=None)
