"""``/healthz``: this process lives. ``/readyz``: it can answer, and how every part is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.deps import Shared
from api.probing import OK

router = APIRouter(tags=["health"])
# Without any other part lookups still answer, and say that they are degraded.
NEEDED = ("postgresql",)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Asks nothing: it answers while every thread is busy."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "PostgreSQL is down or not migrated."}})
def readyz(shared: Shared) -> JSONResponse:
    """The state of every part: ok, down, loading or missing. Open to all, so it tells no details."""
    states = {name: part.state for name, part in shared.probing.states().items()}
    ready = all(states[name] == OK for name in NEEDED)
    content: dict[str, Any] = {"status": "ready" if ready else "not ready", "parts": states}
    return JSONResponse(content, 200 if ready else 503)
