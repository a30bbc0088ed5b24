"""``/v1/calibration``: what relevance means in each generation, with the figures it was judged by."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, Self

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import model_validator

from api.auth import Admin, Reader
from api.deps import Services, Shared
from api.schemas import Request
from pipeline.errors import Unavailable
from pipeline.relevance import shipped_file
from workers import enqueue

router = APIRouter(prefix="/v1", tags=["calibration"])


class CalibrationIn(Request):
    """What to do. ``fit``: one generation, the serving one if none is named. ``use``: an id of the list, or ``shipped``."""

    action: Literal["fit", "use"]
    generation: int | None = None
    id: int | Literal["shipped"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.action == "use" and self.id is None:
            raise ValueError("use needs an id: a number of the list, or 'shipped'")
        return self


@router.get("/calibration")
def calibration(_caller: Reader, shared: Shared, generation: int | None = None) -> dict[str, Any]:
    """Every fitted map, newest first, which one lookups go by, and whether a new one is being fitted."""
    parts = shared.parts
    serving = parts.generations.serving()
    found = [asdict(each) for each in parts.calibrations.all(generation)]
    return {
        "serving_generation": None if serving is None else serving.id,
        "in_use": _in_use(shared, None if serving is None else serving.calibration),
        "fitting": serving is not None and parts.calibrations.fitting(serving.id),
        "thresholds": {
            "highly_relevant": shared.settings.highly_relevant_threshold,
            "reference": shared.settings.reference_threshold,
        },
        "calibrations": found,
        "shipped": {key: value for key, value in shipped_file().items() if key != "model"},
    }


@router.post("/calibration")
def change(asked: CalibrationIn, _caller: Admin, shared: Shared) -> JSONResponse:
    """Fit anew (202: the workers do it, the map in use stays until then), or go by another map from now on."""
    number = asked.generation or _serving(shared)
    ledger = shared.parts.calibrations
    if asked.action == "fit":
        ledger.want(number)
        enqueue.ring(shared.settings.broker_url, "wellhead.calibrate")
        return JSONResponse({"generation": number, "state": "fitting"}, 202)
    if asked.id == "shipped":
        ledger.use_shipped(number)
        return JSONResponse({"generation": number, "in_use": "shipped"})
    assert asked.id is not None
    used = ledger.use(int(asked.id))
    return JSONResponse({"generation": used.generation, "in_use": used.id})


def _in_use(shared: Services, number: int | None) -> int | str:
    if shared.settings.identity_calibration:
        return "identity"
    return "shipped" if number is None else number


def _serving(shared: Services) -> int:
    serving = shared.parts.generations.serving()
    if serving is None:
        raise Unavailable("no generation serves yet: no worker has started", part="generation")
    return serving.id
