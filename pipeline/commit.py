"""Commit: an agent stores a whole process or a conclusion as a new episode, under a key made from what it says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.answers import Invocation
from pipeline.documents import Lane, State
from pipeline.episode_view import clipped
from pipeline.errors import InvalidInput, NotFound
from pipeline.fingerprint import digest
from pipeline.limits import Limits
from pipeline.live import Invocations
from pipeline.receive import Documents, receive
from pipeline.validation import validate

TOOL = "doc_commit"
PREFIX = "committed/"
TITLE_CHARACTERS = 80
KEPT_QUERY_CHARACTERS = 200
# What is there already, or on its way; a parked or consumed one is stored again.
PRESENT = frozenset({State.PENDING, State.SEARCHABLE, State.LEASED})


@dataclass(frozen=True, kw_only=True)
class CommitRequest:
    """Exactly one of ``text`` and ``events``; ``title`` from the first line where none is given."""

    text: str | None = None
    events: Sequence[Mapping[str, Any]] | None = None
    title: str = ""
    domain: str = ""
    session_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Committed:
    """``state``: pending, or unchanged when the same was committed before."""

    invocation_id: str
    key: str
    version: int
    state: str


def commit(
    documents: Documents, invocations: Invocations, limits: Limits, tenant: str, request: CommitRequest
) -> Committed:
    """Stores the episode in the live lane; the caller rings the prepare queue. Raises InvalidInput.

    The key is a digest of what is said, so a call that is repeated because its answer got lost stores nothing twice.
    """
    begun = datetime.now(UTC)
    raw = _raw(request, begun)
    upload = validate(raw, limits)
    present = _present(documents, tenant, upload.key)
    if present is not None:
        version, state = present, "unchanged"
    else:
        received = receive(documents, tenant, upload, Lane.LIVE)
        version, state = received.version, "pending" if received.changed else "unchanged"
    made = Committed(invocation_id=str(uuid.uuid4()), key=upload.key, version=version, state=state)
    invocations.put(_invocation(tenant, request, upload.title, made, begun))
    return made


def _raw(request: CommitRequest, now: datetime) -> dict[str, Any]:
    if (request.text is None) == (request.events is None):
        raise InvalidInput("give text, or events with their own times: exactly one of the two", field="text")
    if request.text is not None:
        if not request.text.strip():
            raise InvalidInput("text is empty", field="text")
        first = request.text
        block = {"type": "text", "text": request.text}
        events: Sequence[Any] = [{"at": now.isoformat(), "source": TOOL, "blocks": [block]}]
    else:
        events = list(request.events or ())
        first = next(filter(None, map(_text, events)), "")
    line = next((line for line in first.splitlines() if line.strip()), "")
    # A text has the time of its commit, which a repetition must not turn into another memory.
    said = request.text if request.text is not None else [dict(e) for e in events if isinstance(e, Mapping)]
    name = digest(said, request.title, request.domain)[:24]
    return {
        "key": f"{PREFIX}{name}",
        "title": request.title or clipped(line, TITLE_CHARACTERS) or "committed",
        **({"domain": request.domain} if request.domain else {}),
        "source": TOOL,
        "events": events,
    }


def _text(event: Any) -> str:
    blocks = event.get("blocks") if isinstance(event, Mapping) else None
    texts = [b.get("text") for b in blocks if isinstance(b, Mapping)] if isinstance(blocks, Sequence) else []
    return next((t for t in texts if isinstance(t, str) and t.strip()), "")


def _present(documents: Documents, tenant: str, key: str) -> int | None:
    try:
        view = documents.view(tenant, key)
    except NotFound:
        return None
    return view.version if view.state in PRESENT else None


def _invocation(tenant: str, request: CommitRequest, title: str, made: Committed, begun: datetime) -> Invocation:
    took = (datetime.now(UTC) - begun).total_seconds() * 1000
    return Invocation(
        id=made.invocation_id,
        tenant=tenant,
        session_id=request.session_id,
        tool_name=TOOL,
        query=clipped(title, KEPT_QUERY_CHARACTERS),
        relevance_level=None,
        dedup_reason=None,
        retrieval_details={"key": made.key, "version": made.version, "state": made.state},
        generation=None,
        calibration=None,
        latency_ms={"total": round(took, 3)},
        at=begun,
    )
