"""``POST /v1/documents:batch``: many documents as JSON lines, one outcome a line; a bad line is bad alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response, StreamingResponse

from api.auth import Writer
from api.deps import Services, Shared, SpooledBody
from api.errors import problem_of
from api.parsing import LaneQuery, json_object, lane_of
from api.routes.documents import received_json
from api.schemas import BatchSummary
from pipeline.documents import Lane, Received, Upload
from pipeline.errors import InvalidInput, PipelineError, Unavailable
from pipeline.receive import receive_many
from pipeline.validation import validate

router = APIRouter(prefix="/v1", tags=["documents"])
NDJSON = "application/x-ndjson"
CHUNK_LINES = 500
CHUNK_BYTES = 8 * 1024 * 1024
SHOWN_PROBLEMS = 100


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the batch: what it asks for, or what is wrong with it."""

    number: int
    size: int
    key: str | None
    upload: Upload | PipelineError


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one line."""

    line: Line
    result: Received | PipelineError

    def to_json(self) -> dict[str, Any]:
        """``{"line","key","version","state","lane"}``, or a problem with ``line`` and ``key``."""
        if isinstance(self.result, Received):
            return {"line": self.line.number, **received_json(self.result)}
        return {"line": self.line.number, "key": self.line.key, **problem_of(self.result)}


@router.post(
    "/documents:batch",
    response_model=BatchSummary,
    responses={200: {"content": {NDJSON: {}}, "description": "One outcome a line, or a summary."}},
    openapi_extra={"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}},
)
def post_batch(
    caller: Writer,
    shared: Shared,
    body: SpooledBody,
    lane: LaneQuery = "backfill",
    accept: Annotated[str, Header()] = NDJSON,
) -> Response:
    """Answers one JSON line per line; with ``Accept: application/json`` a summary. An empty line is skipped."""
    shared.pressure.check(caller.tenant, lane_of(lane))
    outcomes = _outcomes(shared, caller.tenant, body, lane_of(lane))
    if "application/json" in accept and NDJSON not in accept:
        return JSONResponse(_summary(outcomes))
    # The first one is made before the status is sent: a database that is down is a 503, not a broken stream.
    first = next(outcomes, None)
    lines = chain([] if first is None else [first], outcomes)
    return StreamingResponse((_ndjson(outcome) for outcome in lines), media_type=NDJSON)


def _outcomes(shared: Services, tenant: str, body: IO[bytes], lane: Lane) -> Iterator[Outcome]:
    stored = False
    for chunk in _chunks(_lines(shared, body)):
        uploads = [line.upload for line in chunk if isinstance(line.upload, Upload)]
        results = receive_many(shared.parts.documents, tenant, uploads, lane)
        try:
            outcomes = list(_in_order(chunk, results))
        except Unavailable as error:
            if not stored:
                raise
            # What was answered before stands; these lines can be sent again as they are.
            outcomes = [Outcome(line=line, result=error) for line in chunk]
        stored = True
        if any(isinstance(o.result, Received) and o.result.changed for o in outcomes):
            shared.bell.ring()
        yield from outcomes


def _in_order(chunk: list[Line], results: Iterator[Received | PipelineError]) -> Iterator[Outcome]:
    for line in chunk:
        yield Outcome(line=line, result=next(results) if isinstance(line.upload, Upload) else line.upload)


def _lines(shared: Services, body: IO[bytes]) -> Iterator[Line]:
    for number, data in enumerate(body, 1):
        if data.strip():
            key, upload = _parsed(shared, data)
            yield Line(number=number, size=len(data), key=key, upload=upload)


def _parsed(shared: Services, data: bytes) -> tuple[str | None, Upload | PipelineError]:
    key = None
    try:
        raw = json_object(data)
        key = raw["key"] if isinstance(raw.get("key"), str) else None
        return key, validate(raw, shared.parts.limits)
    except PipelineError as error:
        return key, error
    except RecursionError:
        return key, InvalidInput("the line is nested too deep", field="")


def _chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    chunk: list[Line] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += line.size
        if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _ndjson(outcome: Outcome) -> bytes:
    return json.dumps(outcome.to_json(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _summary(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    count = {"documents": 0, "changed": 0, "unchanged": 0, "failed": 0}
    problems: list[dict[str, Any]] = []
    for outcome in outcomes:
        count["documents"] += 1
        if isinstance(outcome.result, Received):
            count["changed" if outcome.result.changed else "unchanged"] += 1
        else:
            count["failed"] += 1
            if len(problems) < SHOWN_PROBLEMS:
                problems.append(outcome.to_json())
    return {**count, "problems": problems}
