"""``/v1/sessions``: what a session was handed, and forgetting it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from api.auth import Reader, Writer
from api.deps import Shared
from pipeline.action_memory import SeenDocument, Session, SessionView
from pipeline.errors import NotFound

router = APIRouter(prefix="/v1", tags=["sessions"])


class SeenOut(BaseModel):
    """A document handed out. ``passages``: the ordinals shown, null for the whole text."""

    key: str
    title: str
    version: int
    passages: list[int] | None
    refetched: int


class SessionDomainOut(BaseModel):
    """One domain in this session. ``domain`` null: empty answers to questions that named none."""

    domain: str | None
    answered: bool
    empty_answers: int
    documents: list[SeenOut]


class QuestionOut(BaseModel):
    """A question that got something: what was asked, where the answer lay and how good it was."""

    query: str
    domain: str
    relevance_level: str


class SessionOut(BaseModel):
    """All that action memory holds of a session, oldest first."""

    session_id: str
    retrieved_domains: list[str]
    domains: list[SessionDomainOut]
    questions: list[QuestionOut]


class SessionCleared(BaseModel):
    """``cleared`` false: there was nothing to forget."""

    session_id: str
    cleared: bool


@router.get("/sessions/{session_id:path}", response_model=SessionOut)
def get_session(session_id: str, caller: Reader, shared: Shared) -> SessionOut:
    """404 for a session nobody has looked anything up in, 503 while action memory is down."""
    view = shared.parts.memory.records().view(Session(tenant=caller.tenant, session_id=session_id))
    if view is None:
        raise NotFound("there is no such session: nothing was looked up in it during the last day")
    return _session(session_id, view)


@router.delete("/sessions/{session_id:path}", response_model=SessionCleared)
def delete_session(session_id: str, caller: Writer, shared: Shared) -> SessionCleared:
    """Documents may be handed out again, and no answer of the session is replayed any more."""
    session = Session(tenant=caller.tenant, session_id=session_id)
    return SessionCleared(session_id=session_id, cleared=shared.parts.memory.records().clear_session(session))


def _session(session_id: str, view: SessionView) -> SessionOut:
    # Documents may have moved to a domain that was never marked itself; none of them may be missing here.
    names = dict.fromkeys((*view.domains, *(d.domain for d in view.documents), *view.empties))
    return SessionOut(
        session_id=session_id,
        retrieved_domains=list(view.domains),
        domains=[_domain(name, view) for name in names],
        questions=[QuestionOut(query=q.query, domain=q.domain, relevance_level=q.level) for q in view.questions],
    )


def _domain(name: str, view: SessionView) -> SessionDomainOut:
    return SessionDomainOut(
        domain=name or None,
        answered=name in view.answered,
        empty_answers=view.empties.get(name, 0),
        documents=[_document(d) for d in view.documents if d.domain == name],
    )


def _document(seen: SeenDocument) -> SeenOut:
    return SeenOut(
        key=seen.key,
        title=seen.title,
        version=seen.version,
        passages=None if seen.passages is None else list(seen.passages),
        refetched=seen.refetched,
    )
