"""``/v1/documents``: one document in, out and away; lists; states of many."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response

from api.auth import Reader, Writer
from api.deps import BodyBytes, Services, Shared
from api.openapi import DOCUMENT_BODY
from api.parsing import IfMatch, LaneName, LaneQuery, etag, expected_version, json_object, lane_of
from api.schemas import (
    DocumentDeleted,
    DocumentOut,
    DocumentPage,
    DocumentReceived,
    StateOut,
    StatesIn,
    StatesOut,
)
from pipeline.adapters.ledger.idempotency import StoredAnswer
from pipeline.documents import DocumentView, Kind, Lane, Received, State, Upload
from pipeline.errors import InvalidInput
from pipeline.field_checks import document_key
from pipeline.fingerprint import digest
from pipeline.receive import receive
from pipeline.validation import validate

router = APIRouter(prefix="/v1", tags=["documents"])


@router.put(
    "/documents/{key:path}",
    response_model=DocumentReceived,
    status_code=202,
    responses={200: {"model": DocumentReceived, "description": "The newest version says the same."}},
    openapi_extra=DOCUMENT_BODY,
)
def put_document(
    key: str,
    caller: Writer,
    shared: Shared,
    body: BodyBytes,
    lane: LaneQuery = "live",
    if_match: IfMatch = None,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Store a document: 202 as a new version, 200 when its text is that of the newest one."""
    upload = _upload(shared, key, json_object(body))
    expected = expected_version(if_match)

    def store() -> StoredAnswer:
        shared.pressure.check(caller.tenant, lane_of(lane))
        received = receive(shared.parts.documents, caller.tenant, upload, lane_of(lane), expected)
        return StoredAnswer(status=202 if received.changed else 200, response=received_json(received))

    if idempotency_key is None:
        answer = store()
    else:
        request = digest("PUT", upload.key, lane, if_match, hashlib.sha256(body).hexdigest())
        answer = _once(shared, caller.tenant, idempotency_key, request, store)
    if answer.status == 202:
        shared.bell.ring()
    return JSONResponse(answer.response, answer.status, headers={"ETag": etag(answer.response["version"])})


@router.get("/documents/{key:path}", response_model=DocumentOut)
def get_document(key: str, caller: Reader, shared: Shared, response: Response) -> Any:
    """A document's state; the ETag is its newest version."""
    view = shared.parts.documents.view(caller.tenant, document_key(key, shared.parts.limits))
    response.headers["ETag"] = etag(view.version)
    return document_json(view)


@router.delete("/documents/{key:path}", response_model=DocumentDeleted)
def delete_document(
    key: str, caller: Writer, shared: Shared, response: Response, if_match: IfMatch = None
) -> dict[str, Any]:
    """Once this answers, no lookup that starts later returns the document."""
    name = document_key(key, shared.parts.limits)
    version = shared.parts.documents.delete(caller.tenant, name, expected_version(if_match))
    response.headers["ETag"] = etag(version)
    return {"key": name, "version": version}


@router.get("/documents", response_model=DocumentPage)
def list_documents(
    caller: Reader,
    shared: Shared,
    domain: Annotated[str | None, Query(max_length=64)] = None,
    kind: Kind | None = None,
    state: State | None = None,
    prefix: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> dict[str, Any]:
    """Documents in the order of their keys."""
    given = {"domain": domain, "kind": kind, "state": state, "prefix": prefix}
    filters = {name: str(value) for name, value in given.items() if value is not None}
    found = shared.parts.documents.page(caller.tenant, _after(cursor), limit + 1, filters)
    following = _cursor(found[limit - 1].key) if len(found) > limit else None
    return {"documents": [document_json(view) for view in found[:limit]], "cursor": following}


@router.post("/documents:states", response_model=StatesOut)
def states(asked: StatesIn, caller: Reader, shared: Shared) -> StatesOut:
    """Where up to 1,000 documents stand: for whoever waits for them."""
    found = shared.parts.status.progress(caller.tenant, asked.keys)
    return StatesOut(documents=[StateOut(**asdict(each)) for each in found])


def received_json(received: Received) -> dict[str, Any]:
    """The answer to one upload."""
    return {
        "key": received.key,
        "version": received.version,
        "state": str(received.state) if received.changed else "unchanged",
        "lane": lane_name(received.lane),
    }


def lane_name(lane: Lane) -> LaneName:
    """``live`` or ``backfill``."""
    return "live" if lane is Lane.LIVE else "backfill"


def document_json(view: DocumentView) -> dict[str, Any]:
    """A document as GET shows it."""
    return {name: value for name, value in asdict(view).items() if name in DocumentOut.model_fields}


def _upload(shared: Services, key: str, raw: dict[str, Any]) -> Upload:
    upload = validate({**raw, "key": key}, shared.parts.limits)
    given = raw.get("key")
    if given is not None and (not isinstance(given, str) or document_key(given, shared.parts.limits) != upload.key):
        raise InvalidInput(f"key must be that of the path, {upload.key!r}, or left out", field="key")
    return upload


def _once(shared: Services, tenant: str, key: str, request: str, act: Any) -> StoredAnswer:
    """Does ``act`` unless this request was answered before; a failed one may be sent again."""
    answers = shared.parts.idempotency
    known = answers.begin(tenant, key, request)
    if known is not None:
        return known
    try:
        answer: StoredAnswer = act()
    except BaseException:
        answers.release(tenant, key)
        raise
    answers.finish(tenant, key, answer)
    return answer


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _after(cursor: str | None) -> str:
    if cursor is None:
        return ""
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise InvalidInput("cursor is not one that a page before gave", field="cursor") from None
