"""``GET /v1/report``: how good the answers were, why some were withheld, how near the best passages were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from api.auth import Reader
from api.deps import Shared

router = APIRouter(prefix="/v1", tags=["report"])


@router.get("/report")
def report(caller: Reader, shared: Shared) -> dict[str, Sequence[dict[str, Any]]]:
    """Counts of the caller's tenant over all its invocations that are kept."""
    return shared.parts.reports.report(caller.tenant)
