"""``POST /v1/lookup``: a question in, the best documents and how good they are out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from api.auth import Reader
from api.deps import Shared
from api.schemas import LookupIn
from pipeline.answers import LookupRequest

router = APIRouter(prefix="/v1", tags=["lookup"])


@router.post("/lookup")
def lookup(asked: LookupIn, caller: Reader, shared: Shared) -> dict[str, Any]:
    """How good the answer is stands in ``relevance_level`` and ``completeness_hint``, never as a score."""
    request = LookupRequest(**{**asked.model_dump(), "refetch": tuple(asked.refetch)})
    return asdict(shared.parts.lookup(caller.tenant).lookup(request))
