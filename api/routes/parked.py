"""``/v1/parked``: what failed for good, with its reason, and the two ways out of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from api.auth import Reader, Writer
from api.deps import Shared
from api.schemas import Request

router = APIRouter(prefix="/v1", tags=["parked"])


class ParkedIn(Request):
    """Which document."""

    key: str = Field(min_length=1)


@router.get("/parked")
def parked(caller: Reader, shared: Shared, after: str = "", limit: int = 100) -> dict[str, Any]:
    """Parked documents by key, with the stage that failed, how often, and the last error."""
    found = shared.parts.parking.parked(caller.tenant, after, max(1, min(limit, 1000)))
    return {"parked": [asdict(each) for each in found]}


@router.post("/parked:retry")
def retry(asked: ParkedIn, caller: Writer, shared: Shared) -> dict[str, Any]:
    """Gives the parked items of a document a fresh start."""
    items = shared.parts.parking.retry(caller.tenant, asked.key)
    shared.bell.ring()
    return {"key": asked.key, "items": items}


@router.post("/parked:drop")
def drop(asked: ParkedIn, caller: Writer, shared: Shared) -> dict[str, Any]:
    """Gives the parked version up; the one before goes on serving."""
    return {"key": asked.key, "items": shared.parts.parking.drop(caller.tenant, asked.key)}
