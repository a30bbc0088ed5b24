"""``/mcp``: the tools, the knowledge map and the prompts for agents, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import FastAPI
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import AnyUrl, Field
from starlette.routing import Route

from api.auth import require_write
from api.deps import Services
from api.errors import problem_of
from api.mcp_text import lookup_structure, lookup_text, recall_envelope, recall_structure
from api.mcp_transport import Connection, McpDoor, connection_of
from api.schemas import EventIn
from pipeline.answers import LookupRequest
from pipeline.commit import CommitRequest, commit
from pipeline.documents import Lane
from pipeline.errors import NotFound, PipelineError
from pipeline.maps import Maps
from pipeline.prompts import SERVED, Language
from pipeline.prompts_memory import memory_prompt
from pipeline.recall_answers import RecallRequest
from pipeline.tool_texts import INSTRUCTIONS, description

MAP_URI = "wellhead://knowledge-map"
YAML = "application/yaml"
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
TAKE = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Query = Annotated[str, Field(description="What you want to know, in your own words and language.")]
Domain = Annotated[str | None, Field(description="Only in this domain of the knowledge map.")]
Aspect = Annotated[str | None, Field(description="What is still missing after an earlier answer.")]
Keys = Annotated[list[str], Field(max_length=20, description="Keys of documents to see once more.")]
TopK = Annotated[int, Field(ge=1, le=10, description="How many episodes at most.")]
UserId = Annotated[str | None, Field(description="Only episodes in which this user takes part.")]
Consume = Annotated[bool, Field(description="Take the episodes out, under a lease.")]
Cursor = Annotated[str | None, Field(description="From an earlier answer: read on there.")]
Text = Annotated[str | None, Field(description="The whole process or the conclusion, as text.")]
Events = Annotated[list[EventIn] | None, Field(description="Or its events, each with its own time.")]
Title = Annotated[str | None, Field(description="A short title; else the first line.")]
LeaseId = Annotated[str, Field(description="The lease that doc_query gave.")]
Outcome = Annotated[Literal["consumed", "released"], Field(description="Used, or not needed.")]


def mount(app: FastAPI, services: Services, sessions: Any) -> StreamableHTTPSessionManager:
    """Adds ``/mcp``; whoever runs the app enters :func:`running` with what this returns."""
    server = make_server(services)
    manager = StreamableHTTPSessionManager(
        app=server._lowlevel_server,  # noqa: SLF001 - the high-level server offers only an application of its own
        json_response=True,
        stateless=True,
        max_request_body_size=2 * services.settings.max_body_bytes + 1024 * 1024,
    )
    door = McpDoor(manager.asgi_app, services.gate, sessions, lambda: services.parts.memory)
    app.router.routes.append(Route("/mcp", endpoint=door, methods=["GET", "POST", "DELETE"], include_in_schema=False))
    return manager


@asynccontextmanager
async def running(manager: StreamableHTTPSessionManager) -> AsyncIterator[None]:
    """Serves as long as it is open."""
    async with manager.run():
        yield


class WellheadServer(MCPServer):
    """The knowledge map is its reader's: a listed resource cannot know who reads it, the server does."""

    def __init__(self, maps: Callable[[], Maps]) -> None:
        super().__init__("wellhead", instructions=" ".join(INSTRUCTIONS), log_level="WARNING")
        self._maps = maps

    async def read_resource(
        self, uri: AnyUrl | str, context: Context | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """The map of the caller's tenant; what other resources there may be as usual."""
        if str(uri) != MAP_URI or context is None:
            return await super().read_resource(uri, context)
        tenant = _connection(context).caller.tenant
        made = await anyio.to_thread.run_sync(lambda: self._maps().of(tenant))
        return [ReadResourceContents(content=made.yaml, mime_type=YAML)]


def make_server(services: Services) -> MCPServer:
    """The server: four tools, one resource, three prompts. Every tool runs in a worker thread."""
    server = WellheadServer(lambda: services.parts.llm.maps)
    _add_lookup(server, services)
    _add_query(server, services)
    _add_commit(server, services)
    _add_ack(server, services)
    _add_map(server)
    _add_prompts(server, lambda: services.parts.llm.maps)
    return server


def _add_lookup(server: MCPServer, services: Services) -> None:
    @server.tool(description=description("lookup_knowledge"), annotations=READ, structured_output=False)
    def lookup_knowledge(
        ctx: Context,
        query: Query,
        domain: Domain = None,
        missing_aspect: Aspect = None,
        refetch: Keys = [],  # noqa: B006
    ) -> CallToolResult:
        def act(at: Connection) -> CallToolResult:
            request = LookupRequest(
                query=query,
                session_id=at.session_id,
                domain=domain,
                missing_aspect=missing_aspect,
                refetch=tuple(refetch),
            )
            answer = services.parts.lookup(at.caller.tenant).lookup(request)
            return _result(lookup_text(answer), lookup_structure(answer))

        return _answered(ctx, act)


def _add_query(server: MCPServer, services: Services) -> None:
    @server.tool(description=description("doc_query"), annotations=TAKE, structured_output=False)
    def doc_query(
        ctx: Context,
        query: Query = "",
        top_k: TopK = 3,
        domain: Domain = None,
        user_id: UserId = None,
        consume: Consume = False,
        cursor: Cursor = None,
    ) -> CallToolResult:
        def act(at: Connection) -> CallToolResult:
            if consume:
                require_write(at.caller)
            request = RecallRequest(
                query=query,
                session_id=at.session_id,
                top_k=top_k,
                domain=domain,
                user_id=user_id,
                consume=consume,
                cursor=cursor,
            )
            answer = services.parts.recall(at.caller.tenant).recall(request)
            return _result(recall_envelope(answer), recall_structure(answer))

        return _answered(ctx, act)


def _add_commit(server: MCPServer, services: Services) -> None:
    @server.tool(description=description("doc_commit"), annotations=WRITE, structured_output=False)
    def doc_commit(
        ctx: Context, text: Text = None, events: Events = None, title: Title = None, domain: Domain = None
    ) -> CallToolResult:
        def act(at: Connection) -> CallToolResult:
            require_write(at.caller)
            services.pressure.check(at.caller.tenant, Lane.LIVE)
            given = None if events is None else [e.model_dump(mode="json", exclude_none=True) for e in events]
            request = CommitRequest(
                text=text, events=given, title=title or "", domain=domain or "", session_id=at.session_id
            )
            parts = services.parts
            made = commit(parts.documents, parts.invocations, parts.limits, at.caller.tenant, request)
            services.bell.ring()
            said = {"key": made.key, "version": made.version, "state": made.state, "invocation_id": made.invocation_id}
            return _result(f"stored as {made.key} ({made.state})", said)

        return _answered(ctx, act)


def _add_ack(server: MCPServer, services: Services) -> None:
    @server.tool(description=description("doc_ack"), annotations=TAKE, structured_output=False)
    def doc_ack(ctx: Context, lease: LeaseId, outcome: Outcome = "consumed") -> CallToolResult:
        def act(at: Connection) -> CallToolResult:
            require_write(at.caller)
            recall = services.parts.recall(at.caller.tenant)
            keys = recall.acknowledge(lease) if outcome == "consumed" else recall.release(lease)
            return _result(f"{outcome}: {', '.join(keys)}", {"lease": lease, "state": outcome, "keys": list(keys)})

        return _answered(ctx, act)


def _add_map(server: MCPServer) -> None:
    @server.resource(MAP_URI, name="knowledge-map", mime_type=YAML)
    def knowledge_map() -> str:
        """The domains of the knowledge base, their documents' titles and what they cover: for planning, no answer."""
        raise NotFound("whose map it is, only a connection says")


def _add_prompts(server: MCPServer, maps: Callable[[], Maps]) -> None:
    @server.prompt()
    def planner(ctx: Context, language: Language = "en") -> str:
        """When to plan a search, and in which domain, with the knowledge map."""
        return SERVED["planner"](language).replace("{knowledge_map}", maps().of(_connection(ctx).caller.tenant).yaml)

    @server.prompt()
    def executor(language: Language = "en") -> str:
        """When to look something up and when to stop."""
        return SERVED["executor"](language)

    @server.prompt()
    def memory(language: Language = "en", graph_tool: str | None = None) -> str:
        """The layers of memory and which tool reaches which; graph_tool names a graph memory of your own."""
        return memory_prompt(language, graph_tool)


def _connection(ctx: Context) -> Connection:
    return connection_of(ctx.request_context.request)


def _answered(ctx: Context, act: Callable[[Connection], CallToolResult]) -> CallToolResult:
    """What went wrong is an answer too, in the words of the HTTP API: nothing internal is told."""
    try:
        return act(_connection(ctx))
    except PipelineError as error:
        problem = problem_of(error)
        said = f"{problem['title']}: {problem['detail']}"
        return CallToolResult(content=[TextContent(type="text", text=said)], structured_content=problem, is_error=True)


def _result(text: str, structure: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structure)
