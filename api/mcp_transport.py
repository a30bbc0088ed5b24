"""Before the MCP server: who is calling, and which session it is. Both come from the connection, never from a tool.

The transport is stateless, so that any process can serve any request; a session is an id that a process gives out on
``initialize`` and every process recognises. The newest protocol version has no sessions: without a conversation named
in ``Wellhead-Session`` nothing could be remembered, so a client that does not name one is sent to the versions that
have sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import anyio.to_thread
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import Caller, Gate
from api.errors import TooLarge, plain, problem_of, respond
from pipeline.action_memory import MAX_SESSION_CHARS, ActionMemory, Session
from pipeline.errors import InvalidInput, PipelineError

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
CONVERSATION_HEADER = "wellhead-session"
STATE = "wellhead.connection"


class Sessions(Protocol):
    """Sessions that every process recognises."""

    def open(self, tenant: str) -> str: ...
    def is_open(self, tenant: str, session_id: str) -> bool: ...
    def end(self, session_id: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What a tool knows of its caller. ``session_id``: the conversation, or the MCP session."""

    caller: Caller
    session_id: str


class McpDoor:
    """ASGI middleware of ``/mcp``: admits, names the session, ends it."""

    def __init__(self, app: ASGIApp, gate: Gate, sessions: Sessions, memory: Callable[[], ActionMemory]) -> None:
        self._app = app
        self._gate = gate
        self._sessions = sessions
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._serve(request, scope, receive, send)
        except PipelineError as error:
            response = respond(problem_of(error))
        except TooLarge as error:
            response = respond({**plain(413, str(error.detail)), "limit": error.limit})
        if response is not None:
            await response(scope, receive, send)

    async def _serve(self, request: Request, scope: Scope, receive: Receive, send: Send) -> Response | None:
        caller = await anyio.to_thread.run_sync(self._gate.admit, request, _secret(request.headers), "read")
        conversation = _conversation(request.headers)
        own = request.headers.get(SESSION_HEADER)
        if own is not None and not await anyio.to_thread.run_sync(self._sessions.is_open, caller.tenant, own):
            return _refused(404, "this session has ended; initialize a new one")
        if request.method == "DELETE":
            return await anyio.to_thread.run_sync(self._end, caller, own)
        if request.method != "POST":
            # There is nothing to push: every answer belongs to a request.
            return Response(status_code=405, headers={"Allow": "POST, DELETE"})
        message = _json(await request.body())
        if _is_modern(request.headers) and conversation is None:
            return _sessionless(message, request.headers)
        opened: str | None = None
        if _method(message) == "initialize":
            opened = self._sessions.open(caller.tenant)
        session_id = conversation or own or opened
        if session_id is None:
            return _refused(400, "Mcp-Session-Id is missing: initialize first")
        scope.setdefault("state", {})[STATE] = Connection(caller=caller, session_id=session_id)
        await self._app(scope, _replayed(await request.body(), receive), _naming(send, opened))
        return None

    def _end(self, caller: Caller, own: str | None) -> Response:
        """A conversation that the caller named itself goes on: it may come back with another MCP session."""
        if own is None:
            return _refused(400, "Mcp-Session-Id is missing")
        self._memory().records().clear_session(Session(tenant=caller.tenant, session_id=own))
        self._sessions.end(own)
        return Response(status_code=200)


def connection_of(request: Any) -> Connection:
    """What the door found out about this request's caller."""
    found: Connection = request.scope["state"][STATE]
    return found


def _secret(headers: Headers) -> str | None:
    kind, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else headers.get("x-api-key")


def _conversation(headers: Headers) -> str | None:
    name = headers.get(CONVERSATION_HEADER)
    if name is not None and not 1 <= len(name) <= MAX_SESSION_CHARS:
        limit = MAX_SESSION_CHARS
        raise InvalidInput(f"Wellhead-Session must have 1 to {limit} characters", field="Wellhead-Session", limit=limit)
    return name


def _is_modern(headers: Headers) -> bool:
    version = headers.get(VERSION_HEADER)
    return version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS


def _sessionless(message: Any, headers: Headers) -> Response:
    error = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": "name the conversation in the header Wellhead-Session, or use a protocol version with sessions",
        "data": {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": headers.get(VERSION_HEADER)},
    }
    number = message.get("id") if isinstance(message, dict) else None
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error}, 400)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None  # the MCP server says what is wrong with it


def _method(message: Any) -> str | None:
    return message.get("method") if isinstance(message, dict) else None


def _refused(status: int, detail: str) -> Response:
    error = {"code": -32600, "message": detail}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _naming(send: Send, session_id: str | None) -> Send:
    async def named(message: Message) -> None:
        if session_id is not None and message["type"] == "http.response.start" and message["status"] < 400:
            MutableHeaders(scope=message)[SESSION_HEADER] = session_id
        await send(message)

    return named
