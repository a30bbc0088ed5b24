"""``GET /v1/prompts/{name}``: the prompts that go with the tools, Chinese and English, versioned by their ETag."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from api.auth import Reader
from api.deps import Shared
from pipeline.errors import NotFound
from pipeline.fingerprint import digest
from pipeline.prompts import SERVED, Language
from pipeline.prompts_memory import memory_prompt

router = APIRouter(prefix="/v1", tags=["prompts"])

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/markdown": {}}, "description": "The prompt."},
    304: {"description": "The prompt is what If-None-Match says."},
    404: {"description": "There is no prompt of that name."},
}


@router.get("/prompts/{name}", responses=ANSWERS, response_class=Response)
def prompt(
    name: str,
    caller: Reader,
    shared: Shared,
    lang: Annotated[Language, Query(description="zh or en.")] = "en",
    fill: Annotated[bool, Query(description="Put the caller's knowledge map in its place.")] = False,
    graph_tool: Annotated[str | None, Query(description="Memory prompt: the caller's own graph memory tool.")] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """The text of a prompt; ``{knowledge_map}`` stands where the map belongs unless ``fill`` is set."""
    if name not in SERVED:
        raise NotFound(f"there is no prompt {name!r}; there are: {', '.join(sorted(SERVED))}", name=name)
    text = memory_prompt(lang, graph_tool) if name == "memory" else SERVED[name](lang)
    if fill and "{knowledge_map}" in text:
        text = text.replace("{knowledge_map}", shared.parts.llm.maps.of(caller.tenant).yaml)
    etag = f'"{digest(text)[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Content-Language": lang}
    if if_none_match == etag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="text/markdown; charset=utf-8", headers=headers)
