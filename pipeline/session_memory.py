"""One lookup's way through its session: replayed, stopped before the search, or chosen and marked after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from pipeline import action_memory
from pipeline.action_memory import (
    Begun,
    DomainLimit,
    Marked,
    Offer,
    Question,
    SeenDocument,
    Selection,
    Session,
    Status,
    answered_questions,
    request_token,
    stopped_domain,
)
from pipeline.answers import LookupAnswer, LookupRequest
from pipeline.handout import ActionMemory, Ask, Candidacy, Grant, Handout, Refusal
from pipeline.ports import QueryVector
from pipeline.repeats import DEFAULT_RULE, RepeatRule, find_repeat

_ANSWER = TypeAdapter(LookupAnswer)


class SessionMemory:
    """Action memory with the domain limit and the rule for repeats of this installation."""

    def __init__(
        self,
        memory: action_memory.ActionMemory,
        limit: DomainLimit = DomainLimit.REPEAT,
        rule: RepeatRule = DEFAULT_RULE,
    ) -> None:
        self.memory = memory
        self.limit = limit
        self.rule = rule

    def open(self, tenant: str, request: LookupRequest) -> Turn:
        """Begins a lookup; one without a session has no memory. Raises InvalidInput for an endless session id."""
        if not request.session_id:
            return Turn()
        session = Session(tenant=tenant, session_id=request.session_id)
        asked = {k: v for k, v in asdict(request).items() if k not in {"session_id", "request_id"}}
        begun = self.memory.begin(session, request_token(request.request_id, asked))
        return SessionTurn(self, session, request, begun)


class Turn:
    """A lookup that remembers nothing, or whose memory only decides what may be handed out."""

    replayed: LookupAnswer | None = None
    domains: tuple[str, ...] = ()
    status: str = Status.OFF
    may_be_closed = False

    def __init__(self, memory: ActionMemory | None = None) -> None:
        self._plain = memory

    def repeated(
        self,
        text: str,  # noqa: ARG002 - SessionTurn reads them
        query: QueryVector | None,  # noqa: ARG002
        unrelated: float | None = None,  # noqa: ARG002
    ) -> tuple[SeenDocument, ...]:
        """What the earlier question was handed that this one repeats; empty when it repeats none.

        ``unrelated``: the median cosine of unrelated questions in the serving generation, None when it is not known.
        """
        return ()

    def closed(self, domains: Iterable[str]) -> tuple[SeenDocument, ...]:  # noqa: ARG002 - SessionTurn reads them
        """What was handed out of the one domain that may not be searched again; empty when there is none."""
        return ()

    def hand_out(self, ask: Ask) -> Handout:
        """Decides what is shown, and marks it."""
        if self._plain is not None:
            return self._plain.hand_out(ask)
        return Handout(granted=tuple(Grant(document=o.document) for o in ask.ranked[: ask.limit]), status=Status.OFF)

    def close(self, answer: LookupAnswer) -> None:
        """Keeps the answer for a replay."""

    def give_up(self) -> None:
        """The lookup failed; a retry may run at once."""


class SessionTurn(Turn):
    """A lookup in a session."""

    def __init__(self, owner: SessionMemory, session: Session, request: LookupRequest, begun: Begun) -> None:
        super().__init__()
        self._owner = owner
        self._session = session
        self._request = request
        self._begun = begun
        # Naming what is missing, or asking for a text once more, passes the domain limit.
        self._exempt = bool(request.missing_aspect or request.refetch)
        self.replayed = None if begun.answer is None else _ANSWER.validate_json(begun.answer)
        self.domains = begun.domains
        self.status = begun.status
        self.may_be_closed = owner.limit is DomainLimit.HARD and not self._exempt

    def repeated(
        self, text: str, query: QueryVector | None, unrelated: float | None = None
    ) -> tuple[SeenDocument, ...]:
        if self._owner.limit is DomainLimit.OFF or self._exempt:
            return ()
        space = query.space if query else ""
        earlier = answered_questions(self._begun, space, self._request.domain)
        rule = self._owner.rule if unrelated is None else replace(self._owner.rule, unrelated=unrelated)
        found = find_repeat(text, query.dense if query else None, earlier, rule) if earlier else None
        if found is None:
            return ()
        return tuple(d for d in self._owner.memory.seen(self._session) if d.key in found.documents)

    def closed(self, domains: Iterable[str]) -> tuple[SeenDocument, ...]:
        domain = stopped_domain(self._owner.limit, self._begun, domains, exempt=self._exempt)
        return () if domain is None else self._owner.memory.seen(self._session, domain)

    def hand_out(self, ask: Ask) -> Handout:
        selection = Selection(
            ranked=tuple(_offer(c) for c in ask.ranked),
            question=_question(ask),
            limit=ask.limit,
            domain=ask.domain,
            refetch=frozenset(ask.refetch),
            hard=self.may_be_closed and not self._begun.retried,
            complete=not ask.incomplete,
        )
        return _handout(ask, self._owner.memory.mark_retrieved(self._session, selection, self._begun))

    def close(self, answer: LookupAnswer) -> None:
        if self._begun.owner:
            text = _ANSWER.dump_json(answer).decode()
            self._owner.memory.finish(self._session, self._begun, text)

    def give_up(self) -> None:
        self._owner.memory.finish(self._session, self._begun, None)


def open_turn(memory: ActionMemory | SessionMemory, tenant: str, request: LookupRequest) -> Turn:
    """The turn of one lookup, whichever kind of memory there is."""
    return memory.open(tenant, request) if isinstance(memory, SessionMemory) else Turn(memory)


def _offer(candidacy: Candidacy) -> Offer:
    c = candidacy
    return Offer(key=c.key, title=c.title, domain=c.domain, version=c.version, passages=c.passages)


def _question(ask: Ask) -> Question:
    return Question(
        query=ask.text,
        space=ask.query.space if ask.query else "",
        vector=ask.query.dense if ask.query else None,
        level=ask.level or "",
        domain=ask.ranked[0].domain if ask.ranked else "",
        documents=tuple(c.key for c in ask.ranked[:1]),
    )


def _handout(ask: Ask, marked: Marked) -> Handout:
    by_key = {c.key: c for c in ask.ranked}
    granted = tuple(
        Grant(
            document=by_key[h.key].document,
            passages=None if h.passages == by_key[h.key].passages else h.passages,
        )
        for h in marked.handed
    )
    if marked.reason is action_memory.DedupReason.DOMAIN_RETRIEVED:
        # The whole domain is closed: all that would have come of it is named, seen or not.
        refused = tuple(Refusal(document=c.document, reason=marked.reason) for c in ask.ranked)
    else:
        refused = tuple(Refusal(document=by_key[w.key].document, reason=w.reason) for w in marked.withheld)
    return Handout(
        granted=granted, refused=refused, domains=marked.domains, empties=marked.empties, status=marked.status
    )
