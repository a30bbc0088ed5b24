"""What of an answer may be handed out: the hook for action memory, and what happens without a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pipeline.action_memory import SeenDocument
from pipeline.ports import QueryVector
from pipeline.relevance import Level


@dataclass(frozen=True, kw_only=True)
class Candidacy:
    """One document at REFERENCE or better that could be handed out. ``passages`` None: the whole body."""

    document: int
    version: int
    key: str
    title: str
    domain: str
    passages: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One lookup as action memory sees it: ``ranked`` best first; none of them means that nothing was found.

    ``domain``: the one that was asked for, or the best one's. ``incomplete``: a part was down, so an empty answer
    must not count as one.
    """

    tenant: str
    session_id: str | None
    request_id: str | None
    text: str
    query: QueryVector | None
    domain: str | None
    level: Level | None
    missing_aspect: str | None
    refetch: tuple[str, ...]
    ranked: tuple[Candidacy, ...]
    limit: int
    incomplete: bool = False


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A question that is answered without a search: what it asks for was handed out before."""

    documents: tuple[SeenDocument, ...]


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A document that may be handed out, and which of its passages; None: as it was offered."""

    document: int
    passages: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A document that was handed out before, and why it is not again: doc_retrieved or domain_retrieved."""

    document: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Handout:
    """What may be handed out, already marked as such: exactly ``granted`` is shown, in this order.

    Where the best one is refused nothing is granted (no dripping through leftovers) and the answer is DEDUPED.
    ``domains``: those of this session; ``empties``: its empty answers in this domain, this one included;
    ``status``: ok, off or unavailable.
    """

    granted: tuple[Grant, ...]
    refused: tuple[Refusal, ...] = ()
    domains: tuple[str, ...] = ()
    empties: int = 0
    status: str = "ok"


class ActionMemory(Protocol):
    """A session's memory, shared by all processes."""

    def hand_out(self, ask: Ask) -> Handout:
        """Decides and marks in one atomic step; never raises for a store that is down (``status``: unavailable)."""
        ...


class NoMemory:
    """Nothing is remembered: the best are granted, up to the limit."""

    def hand_out(self, ask: Ask) -> Handout:
        """The first ones, and no domains."""
        return Handout(granted=tuple(Grant(document=o.document) for o in ask.ranked[: ask.limit]), status="off")
