"""``POST /v1/recall``: a question to memory; and what becomes of the episodes that it holds for the caller."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, Field

from api.auth import Reader, Writer, require_write
from api.deps import Shared
from api.idempotent import IdempotencyKey, once
from api.schemas import EventIn, Request
from pipeline.fingerprint import digest
from pipeline.recall_answers import RecallAnswer, RecallRequest
from pipeline.relevance import Level

router = APIRouter(prefix="/v1", tags=["recall"])

Identifier = Annotated[str, Field(min_length=1, max_length=256)]
LeaseId = Annotated[str, Path(min_length=1, max_length=36)]


class RecallIn(Request):
    """A question to memory, or the cursor of an earlier answer."""

    query: str = ""
    session_id: Identifier | None = None
    top_k: Annotated[int, Field(ge=1, le=10)] = 3
    domain: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    user_id: Identifier | None = None
    agent_id: Identifier | None = None
    consume: bool = Field(default=False, description="Take the episodes out of memory, under a lease.")
    preview: bool = Field(default=False, description="The top three with their first lines, read-only, no events.")
    cursor: Annotated[str, Field(min_length=1, max_length=4000)] | None = None


class EpisodeOut(BaseModel):
    """One episode, or the page of it that this answer holds; ``relevance_level`` null: weak."""

    key: str
    title: str
    domain: str
    version: int
    at: datetime
    source: str
    summary: str = Field(description="The first line of the first event's text.")
    relevance_level: Level | None
    event_count: int
    first_event: int = Field(description="The index of the first event given here.")
    matched_events: list[int] = Field(description="The indices of the events that say what was asked for.")
    media: dict[str, int] = Field(description="MIME type → how many.")
    events: list[EventIn]


class LeaseOut(BaseModel):
    """Acknowledge it before the deadline, and the episodes are gone; else they go back."""

    lease: str
    deadline: datetime
    keys: list[str]


class RecallOut(BaseModel):
    """``text`` is for a prompt; ``episodes`` are for splicing their events into a timeline."""

    invocation_id: str
    text: str
    episodes: list[EpisodeOut]
    lease: LeaseOut | None
    cursor: str | None
    degraded: list[str] | None


class Settled(BaseModel):
    """What became of the episodes of a lease: consumed or released."""

    lease: str
    state: str
    keys: list[str]


@router.post("/recall", response_model=RecallOut)
def recall(asked: RecallIn, caller: Reader, shared: Shared, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
    """Past episodes as text and as events with their original times; nothing is changed unless ``consume`` is set."""
    if asked.consume:
        require_write(caller)

    def answer() -> dict[str, Any]:
        return recall_json(shared.parts.recall(caller.tenant).recall(RecallRequest(**asked.model_dump())))

    # A read may be repeated anyway; what is taken out must not be taken twice.
    key = idempotency_key if asked.consume else None
    return once(shared.parts.idempotency, caller.tenant, key, digest("recall", asked.model_dump_json()), answer)


@router.post("/recall/{lease}/ack", response_model=Settled)
def acknowledge(
    lease: LeaseId, caller: Writer, shared: Shared, idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """The episodes leave memory. 409 when the lease has lapsed or a version moved on: then they are back."""

    def act() -> dict[str, Any]:
        keys = shared.parts.recall(caller.tenant).acknowledge(lease)
        return {"lease": lease, "state": "consumed", "keys": list(keys)}

    return once(shared.parts.idempotency, caller.tenant, idempotency_key, digest("ack", lease), act)


@router.post("/recall/{lease}/release", response_model=Settled)
def release(lease: LeaseId, caller: Writer, shared: Shared, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
    """The episodes may be recalled again at once. 409 when the lease holds nothing any more."""

    def act() -> dict[str, Any]:
        keys = shared.parts.recall(caller.tenant).release(lease)
        return {"lease": lease, "state": "released", "keys": list(keys)}

    return once(shared.parts.idempotency, caller.tenant, idempotency_key, digest("release", lease), act)


def recall_json(answer: RecallAnswer) -> dict[str, Any]:
    """The answer as JSON values."""
    content: dict[str, Any] = jsonable_encoder(asdict(answer))
    return content
