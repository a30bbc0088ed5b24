"""``POST /v1/feedback``: was the answer of a lookup an answer?"""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from api.auth import Writer
from api.deps import Shared
from api.schemas import Request
from pipeline.errors import NotFound

# Tenths of a second that the row of an invocation may need.
WRITTEN_WITHIN = 10

router = APIRouter(prefix="/v1", tags=["feedback"])


class FeedbackIn(Request):
    """``key``: one of the documents of the answer; without it the best one is meant."""

    invocation_id: str = Field(min_length=1, max_length=36)
    relevant: bool
    key: str | None = Field(default=None, min_length=1)


@router.post("/feedback", status_code=201)
def feedback(asked: FeedbackIn, caller: Writer, shared: Shared) -> dict[str, Any]:
    """Kept with the features of the answer; with fifty of them the map of relevance is fitted anew."""
    add = partial(shared.parts.feedback.add, caller.tenant, asked.invocation_id, relevant=asked.relevant, key=asked.key)
    for _ in range(WRITTEN_WITHIN):
        try:
            return asdict(add())
        except NotFound as error:
            if "key" in error.fields:
                raise
            time.sleep(0.1)  # rows are written off the request path
    return asdict(add())
