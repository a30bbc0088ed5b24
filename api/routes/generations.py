"""``GET /v1/generations``: every set of vectors and how complete it is."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from api.auth import Reader
from api.deps import Shared
from api.schemas import GenerationOut, GenerationsOut

router = APIRouter(prefix="/v1", tags=["generations"])


@router.get("/generations", response_model=GenerationsOut)
def generations(_caller: Reader, shared: Shared) -> GenerationsOut:
    """Oldest first; dropped ones are left out."""
    found = shared.parts.status.generations()
    return GenerationsOut(generations=[GenerationOut(**asdict(each)) for each in found])
