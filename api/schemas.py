"""The shapes of requests and answers. Unknown fields of a request are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_KEYS = 1000


class Request(BaseModel):
    """The base of every request body."""

    model_config = ConfigDict(extra="forbid")


class BlockIn(Request):
    """A text, or a medium by its MIME type and reference."""

    type: str
    text: str | None = None
    mime: str | None = None
    ref: str | None = None


class EventIn(Request):
    """One thing that happened in an episode."""

    at: datetime
    source: str = ""
    user_id: str | None = None
    agent_id: str | None = None
    blocks: list[BlockIn]


class DocumentIn(Request):
    """One upload: exactly one of ``body`` and ``events``. Read by the pipeline's own validation; this documents it."""

    key: str | None = Field(default=None, description="In a batch required; on PUT the path says it.")
    title: str = ""
    domain: str = "default"
    keywords: list[str] = []
    summary: str = ""
    covers: list[str] = []
    when_to_retrieve: str = ""
    source: str = ""
    revision: int | None = Field(default=None, description="From the source, monotone: an older one is refused.")
    metadata: dict[str, Any] = {}
    body: str | None = None
    events: list[EventIn] | None = None


class DocumentReceived(BaseModel):
    """What became of an upload."""

    key: str
    version: int
    state: str = Field(description="pending, or unchanged: the newest version says the same.")
    lane: str


class DocumentDeleted(BaseModel):
    """The document is dead: no lookup that starts now returns it."""

    key: str
    version: int
    state: Literal["deleted"] = "deleted"


class DocumentOut(BaseModel):
    """``state`` is the newest version's, ``live_version`` the one that is served."""

    key: str
    kind: str
    version: int
    state: str
    live_version: int | None
    fingerprint: str | None
    domain: str
    title: str
    keywords: list[str]
    summary: str
    covers: list[str]
    when_to_retrieve: str
    writer: str | None
    source: str
    revision: int | None
    metadata: dict[str, Any]
    passages: int
    error: str | None
    updated_at: datetime


class DocumentPage(BaseModel):
    """``cursor``: what to ask the next page with; None at the end."""

    documents: list[DocumentOut]
    cursor: str | None


class StatesIn(Request):
    """Keys to ask the states of."""

    keys: Annotated[list[str], Field(min_length=1, max_length=MAX_KEYS)]


class StateOut(BaseModel):
    """Where one document stands. ``passages`` and ``tokens`` are those of the version served."""

    key: str
    version: int
    state: str
    live_version: int | None
    passages: int
    tokens: int


class StatesOut(BaseModel):
    """The keys that are known; the others are left out."""

    documents: list[StateOut]


class BatchSummary(BaseModel):
    """The JSON form of a batch's outcome. ``problems``: the first hundred, each with ``line`` and ``field``."""

    documents: int
    changed: int
    unchanged: int
    failed: int
    problems: list[dict[str, Any]]


class RefusedFile(BaseModel):
    """A file, or a line of one (``name:line``), that was not taken."""

    name: str
    reason: str
    detail: str


class FilesOut(BaseModel):
    """What became of the uploaded files."""

    documents: list[DocumentReceived]
    refused: list[RefusedFile]


class LookupIn(Request):
    """A question. Without ``session_id`` nothing is remembered."""

    query: Annotated[str, Field(min_length=1)]
    session_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    domain: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    missing_aspect: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    refetch: Annotated[list[str], Field(max_length=20)] = []
    request_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    filter: dict[str, Any] = Field(default={}, description="Metadata that a document must have.")


class PartOut(BaseModel):
    """``state``: ok, down, loading or missing."""

    state: str
    detail: str | None = None


class LaneOut(BaseModel):
    """What waits in one lane."""

    documents: int
    passages: int
    tokens: int
    oldest_seconds: float


class EncodingOut(BaseModel):
    """The last minute of encoding; ``measured_tokens_per_s``: the rate while encoding, over the newest batches."""

    passages: int
    copied: int
    tokens_per_s: float
    batch_fill: float | None
    measured_tokens_per_s: float


class StatusOut(BaseModel):
    """``GET /v1/status``: documents and waiting work are the tenant's, the other figures the whole server's."""

    tenant: str
    documents: dict[str, int]
    pending: dict[str, LaneOut]
    claimed: int
    parked: int
    encoding: EncodingOut
    upload_to_searchable: dict[str, dict[str, float]]
    counters: dict[str, int]
    llm: dict[str, Any]
    parts: dict[str, PartOut]


class GenerationOut(BaseModel):
    """One generation and how far it is."""

    id: int
    fingerprint: str
    status: str
    coverage: float
    documents_done: int
    documents_eligible: int
    tokens_done: int
    tokens_total: int
    parked: int
    tokens_per_s: float
    eta_s: float | None
    recall_check: dict[str, Any] | None
    held: str | None = Field(description="Why it does not serve although it could.")


class AcceptMissing(Request):
    """``accept_missing``: swap although documents that are served now would vanish or grow older."""

    accept_missing: bool = False


class SweepIn(Request):
    """``passage_tokens``: asks what another passage size would cost; only together with ``dry_run``."""

    dry_run: bool = False
    passage_tokens: Annotated[int, Field(ge=32, le=8192)] | None = None

    @model_validator(mode="after")
    def _only_asked(self) -> Self:
        if self.passage_tokens is not None and not self.dry_run:
            raise ValueError("another passage size is a setting of the server: WELLHEAD_PASSAGE_TOKENS")
        return self


class SweepOut(BaseModel):
    """What of the corpus lacks vectors of ``fingerprint``, and how long it takes at the measured rate.

    ``state``: stale (dry run), fresh, started, building, or kept: complete, and served again by a swap.
    """

    fingerprint: str
    state: str
    generation: int | None
    documents: int
    tokens: int
    parked: int
    documents_total: int
    tokens_per_s: float
    seconds: float | None


class EventAccepted(BaseModel):
    """``id`` and ``type`` of the event, and what became of it."""

    id: str
    type: str
    state: str
    generation: int
    fingerprint: str


class GenerationsOut(BaseModel):
    """All generations that are not dropped."""

    generations: list[GenerationOut]
