"""Every error as RFC 9457 problem+json: one shape, the field and the limit named, nothing internal told."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from pipeline.errors import InvalidInput, PipelineError, Unavailable

log = logging.getLogger("wellhead.api")
MEDIA_TYPE = "application/problem+json"


class Unauthorized(PipelineError):
    """A valid API key is needed."""

    status = 401


class Forbidden(PipelineError):
    """This caller may not do that."""

    status = 403


class TooLarge(HTTPException):
    """The request is larger than is accepted. An HTTPException: body parsers let no other one through."""

    def __init__(self, setting: str, limit: int) -> None:
        super().__init__(413, f"the request has more than {limit:,} bytes ({setting})")
        self.limit = limit


def problem_of(error: PipelineError) -> dict[str, Any]:
    """The members of the problem document, extension members included."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return {
        "type": f"urn:wellhead:problem:{kind}",
        "title": (type(error).__doc__ or "").split("\n", 1)[0].rstrip("."),
        "status": error.status,
        "detail": _detail(error),
        **{
            name: value if isinstance(value, int | float | str | None) else str(value)
            for name, value in error.fields.items()
        },
    }


def _detail(error: PipelineError) -> str:
    # Addresses and library messages are for the log, not for whoever calls.
    if isinstance(error, Unavailable):
        return f"{error.part} does not answer; try again in {math.ceil(error.retry_after)} s"
    return "the error is in the server's log" if error.status == HTTPStatus.INTERNAL_SERVER_ERROR else str(error)


def respond(content: dict[str, Any]) -> JSONResponse:
    """A problem document as a response, with the headers that belong to its status."""
    status, headers = int(content["status"]), {}
    if "retry_after" in content:
        headers["Retry-After"] = str(math.ceil(float(content["retry_after"])))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Registers the handlers. Body and header errors of the framework get the same shape as our own."""

    @app.exception_handler(PipelineError)
    def pipeline_error(_request: Request, error: PipelineError) -> JSONResponse:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("%s: %s", type(error).__name__, error, exc_info=error.status == HTTPStatus.INTERNAL_SERVER_ERROR)
        return respond(problem_of(error))

    @app.exception_handler(RequestValidationError)
    def invalid_request(_request: Request, error: RequestValidationError) -> JSONResponse:
        found = [{"field": _field(e["loc"]), "detail": str(e["msg"])} for e in error.errors()]
        first = found[0]
        content = problem_of(InvalidInput(f"{first['field']}: {first['detail']}", field=first["field"]))
        return respond({**content, "errors": found})

    @app.exception_handler(HTTPException)
    def http_error(_request: Request, error: HTTPException) -> JSONResponse:
        content = plain(error.status_code, str(error.detail))
        if isinstance(error, TooLarge):
            content["limit"] = error.limit
        response = respond(content)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    def unexpected(_request: Request, _error: Exception) -> JSONResponse:
        # Starlette logs the traceback after this answer is sent.
        return respond(plain(500, "the error is in the server's log"))


def plain(status: int, detail: str) -> dict[str, Any]:
    """A problem without a type of its own: the status says it all."""
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}


def _field(location: Sequence[Any]) -> str:
    """``("body", "refetch", 0)`` → ``refetch[0]``."""
    name = ""
    for part in location[1:]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name or str(location[0])
