"""What a session has already been handed: the values, the rules and the port. Pure; the store is an adapter.

One lookup goes ``begin`` → (``stopped_domain`` or a repeat: answer without a search) → search → ``mark_retrieved``
→ ``finish``. None of these raises because the store is down: they answer with ``Status.UNAVAILABLE`` and the
lookup goes on without a memory, saying so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.errors import InvalidInput
from pipeline.fingerprint import digest
from pipeline.ports import Floats

MAX_SESSION_CHARS = 256
# Levels after which a question counts as answered: only these can make a later one a repeat.
ANSWERED = frozenset({"PRECISE", "HIGHLY_RELEVANT"})
# The empty answer in a domain that says stop.
EMPTIES_TO_STOP = 2


class Status(StrEnum):
    """What the answer's field ``action_memory`` says."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    OFF = "off"


class DomainLimit(StrEnum):
    """What happens to a further question in a domain that has answered one of this session."""

    OFF = "off"
    REPEAT = "repeat"
    HARD = "hard"


class DedupReason(StrEnum):
    """Why something was not handed out again."""

    DOC_RETRIEVED = "doc_retrieved"
    DOMAIN_RETRIEVED = "domain_retrieved"


@dataclass(frozen=True, kw_only=True)
class Session:
    """Whose memory. An empty part would be everybody's: it raises InvalidInput."""

    tenant: str
    session_id: str

    def __post_init__(self) -> None:
        for name, value in (("tenant", self.tenant), ("session_id", self.session_id)):
            if not 1 <= len(value) <= MAX_SESSION_CHARS:
                limit = MAX_SESSION_CHARS
                raise InvalidInput(f"{name} must have 1 to {limit} characters", field=name, limit=limit)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How long a session is remembered and how much of it. Times in seconds."""

    ttl: float = 86_400.0
    replay: float = 600.0
    lease: float = 10.0
    documents: int = 1000
    passages: int = 4096
    queries: int = 50
    domains: int = 256


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question that was, or is being, asked in this session.

    ``vector``: float32 [dimension], unit length, in ``space``; None when the encoder was down. ``documents``: the
    keys that answered, best first.
    """

    query: str
    space: str = ""
    vector: Floats | None = None
    level: str = ""
    domain: str = ""
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One document that could be handed out. ``passages``: ordinals that would be shown, None: the whole text.

    ``neighbours`` are shown along with passages, but are never a reason to hand a document out again.
    """

    key: str
    title: str
    domain: str
    version: int
    passages: tuple[int, ...] | None = None
    neighbours: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What one search found at REFERENCE or better, best first, and how the answer is to be chosen from it.

    ``domain``: the one asked for, if any. ``hard``: the domain limit is ``hard`` and nothing exempts this question.
    ``complete`` is False while a part is down: an empty answer then proves nothing and is not counted.
    """

    ranked: tuple[Offer, ...]
    question: Question
    limit: int = 3
    domain: str | None = None
    refetch: frozenset[str] = frozenset()
    hard: bool = False
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Handed:
    """One document to show: exactly this was marked. ``passages`` as in Offer. ``refetched``: shown once more."""

    key: str
    version: int
    passages: tuple[int, ...] | None
    refetched: bool = False


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """One document that was not handed out again, and why."""

    key: str
    title: str
    domain: str
    reason: DedupReason


@dataclass(frozen=True, kw_only=True)
class Marked:
    """The selection after action memory. ``reason`` is set when the whole answer is DEDUPED.

    ``empties``: empty answers in this domain (or without a domain) in this session, this one included.
    """

    status: Status
    handed: tuple[Handed, ...]
    withheld: tuple[Withheld, ...] = ()
    reason: DedupReason | None = None
    empties: int = 0
    domains: tuple[str, ...] = ()

    @property
    def says_stop(self) -> bool:
        """Was this at least the second empty answer here?"""
        return self.empties >= EMPTIES_TO_STOP


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The session as it stood when a lookup began. ``answer``: the stored answer of this very request, to be replayed.

    ``request`` and ``owner`` go back into ``mark_retrieved`` and ``finish``. ``retried``: this request has marked
    something before, and its answer was lost: its own traces must not stop it.
    """

    status: Status
    request: str = ""
    owner: str = ""
    answer: str | None = None
    retried: bool = False
    questions: tuple[Question, ...] = ()
    domains: tuple[str, ...] = ()
    answered: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class SeenDocument:
    """One document this session was handed. ``passages``: None, the whole text."""

    key: str
    title: str
    domain: str
    version: int
    passages: tuple[int, ...] | None
    refetched: int = 0


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """All that is remembered of a session. ``empties``: domain ("" for none) → empty answers."""

    documents: tuple[SeenDocument, ...]
    questions: tuple[Question, ...]
    domains: tuple[str, ...]
    answered: frozenset[str]
    empties: Mapping[str, int]


class ActionMemory(Protocol):
    """What a lookup needs of the memory. Nothing here raises because the store is down."""

    def begin(self, session: Session, request: str = "") -> Begun:
        """Reads the session. With a ``request`` token it waits while the same request runs elsewhere."""
        ...

    def mark_retrieved(self, session: Session, selection: Selection, begun: Begun) -> Marked:
        """Chooses and marks in one atomic step; everything that ``handed`` names is marked, and nothing else."""
        ...

    def finish(self, session: Session, begun: Begun, answer: str | None) -> Status:
        """Stores the answer for a replay; None gives the request up, so that a retry runs at once."""
        ...

    def seen(self, session: Session, domain: str | None = None) -> tuple[SeenDocument, ...]:
        """What was handed out (in a domain), oldest first; empty while the store is down."""
        ...

    def records(self) -> SessionRecords:
        """The side for people and for the agent's host: reading and clearing."""
        ...


class SessionRecords(Protocol):
    """Reading and clearing sessions. Every method raises InfrastructureDown while the store is down."""

    def is_doc_retrieved(self, session: Session, key: str, version: int | None = None) -> bool:
        """Was this document (in this version or a newer one) handed out?"""
        ...

    def is_domain_retrieved(self, session: Session, domain: str) -> bool:
        """Was anything of this domain handed out?"""
        ...

    def get_retrieved_domains(self, session: Session) -> tuple[str, ...]:
        """Domains of which something was handed out, in the order of their first time."""
        ...

    def view(self, session: Session) -> SessionView | None:
        """Everything remembered; None when the session is unknown."""
        ...

    def clear_session(self, session: Session) -> bool:
        """Forgets the session and its stored answers. False when there was nothing to forget."""
        ...


def request_token(request_id: str | None, asked: Mapping[str, object]) -> str:
    """Names one request within a session; "" without an id.

    What was asked is part of it: an id that a client uses again for another question must not replay the old answer.
    """
    if not request_id:
        return ""
    return digest(request_id, json.dumps(asked, sort_keys=True, default=str))


def stopped_domain(limit: DomainLimit, begun: Begun, domains: Iterable[str], *, exempt: bool) -> str | None:
    """``hard``: the answered domain that this question must not search again, or None.

    ``domains``: the one asked for, or those of all L0 hits. ``exempt``: ``missing_aspect`` or ``refetch`` was given.
    """
    named = set(domains)
    if limit is not DomainLimit.HARD or exempt or begun.retried or len(named) != 1:
        return None
    only = named.pop()
    return only if only in begun.answered else None


def answered_questions(begun: Begun, space: str, domain: str | None) -> tuple[Question, ...]:
    """The earlier questions that this one could repeat, newest first: answered, comparable, of that domain."""
    if begun.retried:
        return ()
    return tuple(
        q
        for q in reversed(begun.questions)
        if q.level in ANSWERED and domain in {None, q.domain} and q.space in {"", space}
    )


def without_memory(selection: Selection, status: Status) -> Marked:
    """The answer when there is no session or no store: the best, as if nothing had been seen."""
    return Marked(
        status=status,
        handed=tuple(
            Handed(key=o.key, version=o.version, passages=_all(o)) for o in selection.ranked[: selection.limit]
        ),
    )


def _all(offer: Offer) -> tuple[int, ...] | None:
    if offer.passages is None:
        return None
    return tuple(sorted({*offer.passages, *offer.neighbours}))
