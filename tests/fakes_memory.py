"""Action memory in this process: the same promises as the real one, with a clock that tests turn."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipeline.action_memory import (
    ANSWERED,
    Begun,
    Bounds,
    DedupReason,
    Handed,
    Marked,
    Offer,
    Question,
    SeenDocument,
    Selection,
    Session,
    SessionView,
    Status,
    Withheld,
    without_memory,
)
from pipeline.errors import InfrastructureDown


@dataclass
class _Request:
    owner: str = ""
    leased_until: float = 0.0
    forgotten_at: float = 0.0
    answer: str | None = None
    taken: dict[str, Handed] | None = None
    empties: int | None = None


@dataclass
class _Memory:
    forgotten_at: float = 0.0
    documents: dict[str, SeenDocument] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    empties: dict[str, int] = field(default_factory=dict)
    requests: dict[str, _Request] = field(default_factory=dict)


class FakeActionMemory:
    """``down=True`` makes it unavailable; ``clock`` is in seconds."""

    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.bounds = bounds or Bounds()
        self.clock = clock
        self.down = False
        self._sessions: dict[Session, _Memory] = {}
        self._changed = threading.Condition()

    def begin(self, session: Session, request: str = "") -> Begun:
        if self.down:
            return Begun(status=Status.UNAVAILABLE)
        with self._changed:
            self._changed.wait_for(lambda: not self._busy(session, request), timeout=2 * self.bounds.lease)
            memory = self._memory(session)
            owner, retried = "", False
            if request:
                known = self._request(memory, request)
                if known.answer is not None:
                    return Begun(status=Status.OK, request=request, answer=known.answer)
                retried = known.taken is not None
                known.owner = owner = uuid.uuid4().hex
                known.leased_until = self.clock() + self.bounds.lease
            return Begun(
                status=Status.OK,
                request=request,
                owner=owner,
                retried=retried,
                questions=tuple(memory.questions),
                domains=tuple(memory.domains),
                answered=frozenset(memory.answered),
            )

    def mark_retrieved(self, session: Session, selection: Selection, begun: Begun) -> Marked:
        if self.down or begun.status is not Status.OK:
            return without_memory(selection, Status.UNAVAILABLE if self.down else begun.status)
        with self._changed:
            memory = self._memory(session)
            request = self._request(memory, begun.request) if begun.request else _Request()
            if not selection.ranked:
                marked = self._empty(memory, selection, request)
            else:
                marked = self._again(selection, request) or self._choose(memory, selection, request)
            request.taken = request.taken or {}
            return replace(marked, domains=tuple(memory.domains))

    def finish(self, session: Session, begun: Begun, answer: str | None) -> Status:
        if self.down:
            return Status.UNAVAILABLE
        if not begun.owner:
            return begun.status
        with self._changed:
            request = self._memory(session).requests.get(begun.request)
            if request is not None and request.owner == begun.owner:
                request.owner, request.leased_until = "", 0.0
                request.answer = answer
            self._changed.notify_all()
        return Status.OK

    def seen(self, session: Session, domain: str | None = None) -> tuple[SeenDocument, ...]:
        if self.down:
            return ()
        view = self.view(session)
        return tuple(d for d in (view.documents if view else ()) if domain in {None, d.domain})

    def records(self) -> FakeActionMemory:
        return self

    def is_doc_retrieved(self, session: Session, key: str, version: int | None = None) -> bool:
        view = self.view(session)
        found = [d for d in (view.documents if view else ()) if d.key == key]
        return bool(found) and (version is None or found[0].version >= version)

    def is_domain_retrieved(self, session: Session, domain: str) -> bool:
        return domain in self.get_retrieved_domains(session)

    def get_retrieved_domains(self, session: Session) -> tuple[str, ...]:
        view = self.view(session)
        return view.domains if view else ()

    def view(self, session: Session) -> SessionView | None:
        self._check()
        with self._changed:
            memory = self._sessions.get(session)
            if memory is None or self.clock() >= memory.forgotten_at:
                return None
            if not (memory.documents or memory.domains or memory.empties):
                return None
            return SessionView(
                documents=tuple(memory.documents.values()),
                questions=tuple(memory.questions),
                domains=tuple(memory.domains),
                answered=frozenset(memory.answered),
                empties=dict(memory.empties),
            )

    def clear_session(self, session: Session) -> bool:
        self._check()
        with self._changed:
            known = self.view(session) is not None
            memory = self._sessions.pop(session, None)
            return known or bool(memory and memory.requests)

    def _check(self) -> None:
        if self.down:
            raise InfrastructureDown("action memory does not answer", part="action_memory")

    def _memory(self, session: Session) -> _Memory:
        memory = self._sessions.get(session)
        if memory is None or self.clock() >= memory.forgotten_at:
            memory = self._sessions[session] = _Memory()
        memory.forgotten_at = self.clock() + self.bounds.ttl
        return memory

    def _request(self, memory: _Memory, token: str) -> _Request:
        request = memory.requests.get(token)
        if request is None or self.clock() >= request.forgotten_at:
            request = memory.requests[token] = _Request()
        request.forgotten_at = self.clock() + self.bounds.replay
        return request

    def _busy(self, session: Session, token: str) -> bool:
        memory = self._sessions.get(session)
        request = memory.requests.get(token) if memory else None
        return bool(token and request and request.answer is None and request.leased_until > self.clock())

    def _empty(self, memory: _Memory, selection: Selection, request: _Request) -> Marked:
        domain = selection.domain or ""
        if request.empties is None:
            if selection.complete and (domain in memory.empties or len(memory.empties) < self.bounds.domains):
                memory.empties[domain] = memory.empties.get(domain, 0) + 1
            request.empties = memory.empties.get(domain, 0)
        return Marked(status=Status.OK, handed=(), empties=request.empties)

    def _again(self, selection: Selection, request: _Request) -> Marked | None:
        taken = request.taken or {}
        handed = tuple(taken[o.key] for o in selection.ranked if o.key in taken and taken[o.key].version == o.version)
        return Marked(status=Status.OK, handed=handed) if handed else None

    def _choose(self, memory: _Memory, selection: Selection, request: _Request) -> Marked:
        best = selection.ranked[0]
        stopped = selection.hard and best.domain in memory.answered
        fresh = not stopped and self._unseen(memory, best) is not False
        handed: list[Handed] = []
        withheld: list[Withheld] = []
        for offer in selection.ranked:
            seen = memory.documents.get(offer.key)
            again = seen is not None and offer.key in selection.refetch
            passages = _all(offer) if again else self._unseen(memory, offer)
            if stopped or passages is False:
                if seen:
                    reason = DedupReason.DOMAIN_RETRIEVED if stopped else DedupReason.DOC_RETRIEVED
                    withheld.append(Withheld(key=offer.key, title=offer.title, domain=offer.domain, reason=reason))
            elif len(handed) < selection.limit and (fresh or offer.key in selection.refetch):
                given = Handed(key=offer.key, version=offer.version, passages=passages, refetched=again)
                self._mark(memory, offer, given)
                handed.append(given)
        request.taken = {h.key: h for h in handed}
        if fresh:
            memory.questions = [*memory.questions, selection.question][-self.bounds.queries :]
            if selection.question.level in ANSWERED:
                memory.answered.add(best.domain)
        reason = DedupReason.DOMAIN_RETRIEVED if stopped else DedupReason.DOC_RETRIEVED
        return Marked(
            status=Status.OK,
            handed=tuple(handed),
            withheld=tuple(withheld),
            reason=None if handed else reason,
        )

    def _unseen(self, memory: _Memory, offer: Offer) -> tuple[int, ...] | None | bool:
        """The passages not shown yet, None for the whole text, False for nothing."""
        seen = memory.documents.get(offer.key)
        if seen is None or offer.version > seen.version:
            return _all(offer)
        if offer.version < seen.version or seen.passages is None:
            return False
        if offer.passages is None:
            return None
        shown = set(seen.passages)
        if set(offer.passages) <= shown:
            return False
        return tuple(sorted({*offer.passages, *offer.neighbours} - shown))

    def _mark(self, memory: _Memory, offer: Offer, given: Handed) -> None:
        seen = memory.documents.get(offer.key)
        passages = given.passages
        if seen is not None and seen.version == offer.version:
            whole = seen.passages is None or passages is None
            passages = None if whole else tuple(sorted({*seen.passages, *passages}))[-self.bounds.passages :]
        memory.documents[offer.key] = SeenDocument(
            key=offer.key,
            title=offer.title,
            domain=offer.domain,
            version=offer.version,
            passages=passages,
            refetched=(seen.refetched if seen else 0) + given.refetched,
        )
        if offer.domain not in memory.domains and len(memory.domains) < self.bounds.domains:
            memory.domains.append(offer.domain)
        if len(memory.documents) > self.bounds.documents:
            for key in list(memory.documents)[: len(memory.documents) - self.bounds.documents * 9 // 10]:
                del memory.documents[key]


def _all(offer: Offer) -> tuple[int, ...] | None:
    return None if offer.passages is None else tuple(sorted({*offer.passages, *offer.neighbours}))
