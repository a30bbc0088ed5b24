"""What a lookup is asked and what it answers. Frozen values; the names are those of ``POST /v1/lookup``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.content import Citation
from pipeline.relevance import Level


@dataclass(frozen=True, kw_only=True)
class LookupRequest:
    """One question. ``refetch``: keys to hand out once more; ``filter``: what a document's metadata must contain."""

    query: str
    session_id: str | None = None
    domain: str | None = None
    missing_aspect: str | None = None
    refetch: tuple[str, ...] = ()
    request_id: str | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One document handed out: its text or the best pieces of it, and where they stand.

    ``when_to_retrieve`` is the document's own advice to the executor; the planner's map never carries it.
    """

    key: str
    title: str
    domain: str
    content: str
    citation: Citation
    source: str
    updated_at: datetime
    when_to_retrieve: str = ""


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """A document that this session already received. ``reason``: doc_retrieved or domain_retrieved."""

    key: str
    title: str
    domain: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NotShown:
    """``below_floor``: documents found that are no answer; ``pending_in_domain``: documents not yet searchable."""

    below_floor: int = 0
    pending_in_domain: int = 0


@dataclass(frozen=True, kw_only=True)
class LookupAnswer:
    """``relevance_level`` None: nothing found. ``degraded``: the parts that were missing, None when none was.

    ``action_memory``: ok, off (no session) or unavailable. No score is in here.
    """

    invocation_id: str
    found: bool
    relevance_level: Level | None
    completeness_hint: str
    message: str
    primary: Found | None
    supplement: tuple[Found, ...] = ()
    retrieved_domains_this_session: tuple[str, ...] = ()
    deduped: tuple[Withheld, ...] = ()
    not_shown: NotShown = field(default_factory=NotShown)
    action_memory: str = "off"
    degraded: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One row of ``tool_invocation``: what a call of a tool did, for people; scores are here and nowhere else."""

    id: str
    tenant: str
    session_id: str | None
    tool_name: str
    query: str
    relevance_level: str | None
    dedup_reason: str | None
    retrieval_details: Mapping[str, Any]
    generation: int | None
    calibration: int | None
    latency_ms: Mapping[str, float]
    at: datetime
