"""``POST /v1/files``: files as they are, read by the same code as ``wellhead backfill``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, UploadFile

from api.auth import Writer
from api.deps import Services, Shared
from api.parsing import LaneQuery, lane_of
from api.routes.documents import received_json
from api.schemas import FilesOut
from pipeline.documents import Lane, Upload
from pipeline.errors import PipelineError, Unavailable
from pipeline.reading import read_stream
from pipeline.receive import receive

router = APIRouter(prefix="/v1", tags=["documents"])
Outcome = dict[str, Any]


@router.post("/files", response_model=FilesOut, status_code=202)
def post_files(
    caller: Writer,
    shared: Shared,
    file: Annotated[list[UploadFile], File(description="Markdown, text, HTML, JSON or JSON lines.")],
    domain: Annotated[str, Form(max_length=64)] = "default",
    prefix: Annotated[str, Form(max_length=256, description="Put before every file's name to make its key.")] = "",
    lane: LaneQuery = "live",
) -> dict[str, list[Outcome]]:
    """Every file ends as a document (JSON lines: as several) or as a refusal with its reason."""
    shared.pressure.check(caller.tenant, lane_of(lane))
    answer: dict[str, list[Outcome]] = {"documents": [], "refused": []}
    for each in file:
        name = f"{prefix}{each.filename or ''}"
        for found in read_stream(name, each.file, shared.parts.limits, domain=domain):
            if isinstance(found, Upload):
                kind, outcome = _stored(shared, caller.tenant, found, lane_of(lane))
            else:
                kind, outcome = "refused", {"name": found.name, "reason": found.reason, "detail": found.sentence}
            answer[kind].append(outcome)
    if any(document["state"] != "unchanged" for document in answer["documents"]):
        shared.bell.ring()
    return answer


def _stored(shared: Services, tenant: str, upload: Upload, lane: Lane) -> tuple[str, Outcome]:
    try:
        return "documents", received_json(receive(shared.parts.documents, tenant, upload, lane))
    except Unavailable:
        raise
    except PipelineError as error:
        return "refused", {"name": upload.key, "reason": type(error).__name__.lower(), "detail": str(error)}
