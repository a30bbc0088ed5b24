"""``POST /v1/events``: what other systems want done, as CloudEvents."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from api.auth import Admin
from api.cloud_events import event_of
from api.deps import BodyBytes, Shared
from api.routes.generations import start
from api.schemas import EventAccepted

router = APIRouter(prefix="/v1", tags=["events"])

EVENT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/cloudevents+json": {
                "schema": {
                    "type": "object",
                    "required": ["specversion", "id", "source", "type"],
                    "properties": {
                        "specversion": {"const": "1.0"},
                        "id": {"type": "string"},
                        "source": {"type": "string"},
                        "type": {"const": "wellhead.reindex.requested"},
                    },
                }
            }
        },
    }
}


@router.post("/events", response_model=EventAccepted, status_code=202, openapi_extra=EVENT_BODY)
def events(request: Request, _caller: Admin, shared: Shared, body: BodyBytes) -> EventAccepted:
    """``wellhead.reindex.requested``: embed the corpus by the settings in force, also by ones that were dropped.

    The same event twice does no more than once: a fingerprint has one generation.
    """
    event = event_of(request.headers, body)
    done = start(shared)
    return EventAccepted(
        id=event.id,
        type=event.type,
        state=str(done.state),
        generation=done.generation.id,
        fingerprint=done.generation.fingerprint,
    )
