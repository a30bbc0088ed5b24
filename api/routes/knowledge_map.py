"""``GET /v1/knowledge-map``: what a planner's prompt is given; ``/v1/domains`` for people and for the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from api.auth import Reader, Writer
from api.deps import Shared
from pipeline.errors import NotFound

router = APIRouter(prefix="/v1", tags=["knowledge map"])

YAML = "application/yaml; charset=utf-8"
MAP_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/yaml": {}, "application/json": {}}, "description": "The map, with its ETag."},
    304: {"description": "The map is what If-None-Match says."},
}


@router.get("/knowledge-map", responses=MAP_ANSWERS, response_class=Response)
def knowledge_map(
    caller: Reader,
    shared: Shared,
    form: Annotated[Literal["yaml", "json"] | None, Query(alias="format", description="Wins over Accept.")] = None,
    accept: Annotated[str, Header()] = "*/*",
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """Domains and their documents' titles and covers, as YAML unless JSON is asked for."""
    made = shared.parts.llm.maps.of(caller.tenant)
    as_json = form == "json" or (form is None and "application/json" in accept and "yaml" not in accept)
    # Two representations, two strong tags.
    etag = f'{made.etag[:-1]}-json"' if as_json else made.etag
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Accept, Authorization"}
    if etag in {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")} or if_none_match.strip() == "*":
        return Response(status_code=304, headers=headers)
    if as_json:
        return Response(json.dumps(made.json, ensure_ascii=False), media_type="application/json", headers=headers)
    return Response(made.yaml, media_type=YAML, headers=headers)


@router.get("/domains")
def domains(caller: Reader, shared: Shared) -> dict[str, list[dict[str, Any]]]:
    """Every domain with its summary, its writer and the changes that still wait for a summary."""
    return {"domains": [asdict(view) for view in shared.parts.llm.map_ledger.domain_views(caller.tenant)]}


@router.post("/domains:refresh", status_code=202)
def refresh(
    caller: Writer, shared: Shared, domain: Annotated[list[str] | None, Query(max_length=1000)] = None
) -> dict[str, list[str]]:
    """Has domains (all, or these) looked at again; the same input still makes no call. 404 when one does not exist."""
    names = shared.parts.llm.map_ledger.refresh(caller.tenant, domain)
    if missing := sorted(set(domain or ()) - set(names)):
        raise NotFound(f"there is no domain {missing[0]!r}", domain=missing[0])
    return {"domains": names}
