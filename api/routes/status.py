"""``GET /v1/status``: what is there, what waits, how fast it goes, how every part is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from api.auth import Reader
from api.deps import Shared
from api.routes.documents import lane_name
from api.schemas import StatusOut

router = APIRouter(prefix="/v1", tags=["status"])


@router.get("/status", response_model=StatusOut)
def status(caller: Reader, shared: Shared) -> dict[str, Any]:
    """Read from PostgreSQL, not from the workers: a worker that is gone cannot hide what waits for it."""
    figures = shared.parts.status
    work = figures.work(caller.tenant)
    return {
        "tenant": caller.tenant,
        "documents": figures.documents_by_state(caller.tenant),
        "pending": {lane_name(each.lane): asdict(each) for each in figures.pending(caller.tenant)},
        "claimed": work["claimed"],
        "parked": work["parked"],
        "encoding": asdict(figures.throughput()),
        "upload_to_searchable": {lane_name(lane): value for lane, value in figures.searchable_seconds().items()},
        "counters": figures.counters(),
        "llm": {
            **asdict(shared.parts.llm.budget.standing()),
            "today": [asdict(used) for used in shared.parts.llm.budget.usage(tenant=caller.tenant)],
        },
        "parts": {name: asdict(part) for name, part in shared.probing.states().items()},
    }
