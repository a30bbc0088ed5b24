"""``wellhead mcp``: the Model Context Protocol over standard input and output, as a thin client of the running API."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import IO, Annotated, Any

import httpx
import typer

from ops.cli_client import DataDir, api_url, settings_for

SESSION_HEADER = "Mcp-Session-Id"
VERSION_HEADER = "Mcp-Protocol-Version"
# JSON-RPC's "method not found": what a server without the newest way to begin says, so that clients use the older.
NOT_FOUND = -32601
INTERNAL = -32603
PARALLEL = 8


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(mcp)


def mcp(
    session: Annotated[
        str | None, typer.Option("--session", help="Name the conversation: its memory outlives this process.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Serve agents over standard input and output; end of input ends the session."""
    settings = settings_for(data_dir)
    key = settings.api_key.get_secret_value()
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        **({"Authorization": f"Bearer {key}"} if key else {}),
        **({"Wellhead-Session": session} if session else {}),
    }
    with httpx.Client(headers=headers, timeout=120.0) as client:
        Bridge(client, f"{api_url(settings)}/mcp", sys.stdout).run(sys.stdin)


class Bridge:
    """Lines of JSON-RPC in, one POST each, lines of JSON-RPC out. What is answered first is written first."""

    def __init__(self, client: httpx.Client, url: str, out: IO[str]) -> None:
        self._client = client
        self._url = url
        self._out = out
        self._writing = threading.Lock()
        self._session: dict[str, str] = {}

    def run(self, lines: Iterable[str]) -> None:
        """Serves until the input ends, answers what is still being asked, then ends the session."""
        try:
            with ThreadPoolExecutor(PARALLEL) as pool:
                for line in lines:
                    message = _parsed(line)
                    if message is None:
                        continue
                    # Everything after it carries the session that it opens.
                    if message.get("method") == "initialize" or "id" not in message:
                        self._forward(message)
                    else:
                        pool.submit(self._forward, message)
        finally:
            self._end()

    def _forward(self, message: dict[str, Any]) -> None:
        if message.get("method") == "server/discover":
            self._fail(message, NOT_FOUND, "this transport begins with initialize")
            return
        try:
            answer = self._client.post(self._url, json=message, headers=self._session)
        except httpx.TransportError as error:
            self._fail(message, INTERNAL, f"the API at {self._url} does not answer ({type(error).__name__})")
            return
        if message.get("method") == "initialize" and answer.is_success:
            self._begin(answer)
        if answer.status_code == HTTPStatus.ACCEPTED:
            return
        content = _object(answer)
        if "jsonrpc" not in content:
            self._fail(message, INTERNAL, str(content.get("detail") or f"the API answers {answer.status_code}"))
        elif content.get("id") is None and "id" in message:
            # Refused before it was read: the client still waits for an answer to this request.
            self._write({**content, "id": message["id"]})
        else:
            self._write(content)

    def _begin(self, answer: httpx.Response) -> None:
        version = _object(answer).get("result", {}).get("protocolVersion")
        named = answer.headers.get(SESSION_HEADER)
        self._session = {
            **({SESSION_HEADER: named} if named else {}),
            **({VERSION_HEADER: str(version)} if version else {}),
        }

    def _end(self) -> None:
        if SESSION_HEADER not in self._session:
            return
        try:
            self._client.delete(self._url, headers=self._session)
        except httpx.TransportError as error:
            typer.echo(f"The session could not be ended ({type(error).__name__}).", err=True)

    def _fail(self, message: dict[str, Any], code: int, sentence: str) -> None:
        if "id" in message:
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": sentence}})
        else:
            typer.echo(sentence, err=True)

    def _write(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False)
        with self._writing:
            self._out.write(line + "\n")
            self._out.flush()


def _parsed(line: str) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        typer.echo("A line of input is no JSON-RPC message.", err=True)
        return None
    return message


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
