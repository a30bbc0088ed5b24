"""A scripted agent of twenty steps, and two ways to drive it: the official SDK's client and the inspector's CLI."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from anyio.from_thread import start_blocking_portal
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

STOPS = {"PRECISE", "HIGHLY_RELEVANT", "DEDUPED"}


@dataclass(frozen=True)
class Result:
    """What a tool answered: the text an agent reads, and its structure."""

    text: str
    structure: dict[str, Any]
    error: bool = False


class Driver(Protocol):
    """Calls tools of one conversation."""

    def call(self, tool: str, **arguments: Any) -> Result: ...


class SdkDriver:
    """The official SDK's client: one MCP session from beginning to end."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._portal_context = start_blocking_portal()
        self._portal = self._portal_context.__enter__()
        self._session = self._portal.wrap_async_context_manager(self._connected())
        self._client = self._session.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)
        self._portal_context.__exit__(*error)

    def _connected(self):
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def connected():
            async with AsyncExitStack() as stack:
                http = await stack.enter_async_context(create_mcp_http_client())
                transport = streamable_http_client(f"{self._url}/mcp", http_client=http)
                yield await stack.enter_async_context(Client(transport))

        return connected()

    def call(self, tool: str, **arguments: Any) -> Result:
        made = self._portal.call(self._client.call_tool, tool, arguments)
        return Result("\n".join(b.text for b in made.content), made.structured_content, bool(made.is_error))


class InspectorDriver:
    """``npx @modelcontextprotocol/inspector --cli`` before ``wellhead mcp``: a new process for every call."""

    def __init__(self, wellhead: list[str], environment: dict[str, str], session: str) -> None:
        self._command = ["npx", "-y", "@modelcontextprotocol/inspector", "--cli"]
        for name, value in environment.items():
            self._command += ["-e", f"{name}={value}"]
        self._command += [*wellhead, "mcp", "--session", session]

    def run(self, method: str, *more: str) -> dict[str, Any]:
        made = subprocess.run([*self._command, "--method", method, *more], capture_output=True, text=True, timeout=240)
        if made.returncode != 0 and not made.stdout.strip():
            raise AssertionError(made.stderr[-2000:])
        return json.loads(made.stdout)

    def call(self, tool: str, **arguments: Any) -> Result:
        more = ["--tool-name", tool]
        for name, value in arguments.items():
            more += ["--tool-arg", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        made = self.run("tools/call", *more)
        text = "\n".join(b["text"] for b in made["content"])
        return Result(text, made.get("structuredContent") or {}, bool(made.get("isError")))


@dataclass
class Run:
    """The steps that were taken. ``handed``: every document or episode that was handed out, in order."""

    driver: Driver
    embed: Callable[[], None]
    steps: list[tuple[str, str, dict[str, Any], Result]] = field(default_factory=list)
    handed: list[str] = field(default_factory=list)

    def step(self, why: str, tool: str, **arguments: Any) -> Result:
        result = self.driver.call(tool, **arguments)
        self.steps.append((why, tool, arguments, result))
        found = result.structure
        if tool == "lookup_knowledge":
            self.handed += [d["key"] for d in filter(None, [found["primary"], *found["supplement"]])]
        return result

    def ask(self, why: str, *questions: str) -> str | None:
        """Asks until a level says stop; what the script would go on asking shows whether it does."""
        for question in questions:
            level = self.step(why, "lookup_knowledge", query=question).structure["relevance_level"]
            if level in STOPS or level is None:
                return level
        return level


def twenty_steps(run: Run) -> None:
    """The original's four scenarios, its complaint about twenty calls, and memory."""
    first = "Scenario 1: an ordinary question"
    run.step(first, "lookup_knowledge", query="数据库连接池怎么配置？")
    again = "Scenario 2: the same in other words is not handed out again"
    run.step(again, "lookup_knowledge", query="数据库的连接池要怎么配置")
    run.step(again, "lookup_knowledge", query="怎么配置数据库连接池？")
    exact = "Scenario 3: an exact name"
    run.step(exact, "lookup_knowledge", query="ERR_TIMEOUT 是什么？")
    run.step(exact, "lookup_knowledge", query="ERR_TIMEOUT 是什么意思？")
    broad = "Scenario 4: a broad question, then the missing aspect by name"
    run.step(broad, "lookup_knowledge", query="如何排查生产故障？")
    run.step(broad, "lookup_knowledge", query="如何排查生产故障？", missing_aspect="磁盘被日志写满时的处理步骤")
    nothing = "What the knowledge base does not hold"
    run.step(nothing, "lookup_knowledge", query="小提琴怎么调音")
    run.step(nothing, "lookup_knowledge", query="小提琴的琴弦怎么换")
    stubborn = "Twenty calls: a stubborn agent repeats itself and gets nothing twice"
    for question in ("数据库连接池怎么配置？", "ERR_TIMEOUT 是什么？", "数据库连接池的配置方法"):
        run.step(stubborn, "lookup_knowledge", query=question)
    memory = "Memory: an exact string, taken out, settled"
    run.step(memory, "doc_query", query="13010")
    lease = run.step(memory, "doc_query", query="13010", consume=True).structure["lease"]["lease"]
    run.step(memory, "doc_query", query="13010")
    run.step(memory, "doc_ack", lease=lease)
    run.step(memory, "doc_query", query="13010")
    done = "Memory: what was done is stored and found again"
    text = "网关端口 13010 的整改已经完成：登记表更新，健康检查地址同步修改，旧端口 13000 归还监控代理。"
    run.step(done, "doc_commit", text=text)
    run.embed()
    run.step(done, "doc_query", query="13010 整改 做完了吗")
    run.step(done, "doc_commit", text=text)


def transcript(run: Run) -> str:
    """The run as a page of the documentation."""
    lines = [
        "# An agent's run over MCP",
        "",
        "Written by `tests/acceptance/test_mcp.py`: one session of the official SDK's client, twenty calls, on the demo",
        "documents and a few conversations. What the agent reads is shown in full, but for long documents.",
        "",
    ]
    why = ""
    for number, (reason, tool, arguments, result) in enumerate(run.steps, start=1):
        if reason != why:
            lines += [f"## {reason}", ""]
            why = reason
        given = json.dumps({k: "…" if k == "lease" else v for k, v in arguments.items()}, ensure_ascii=False)
        lines += [f"**{number}.** `{tool}` `{given}`", "", "```text", shortened(result.text), "```", ""]
    return "\n".join(lines)


def shortened(text: str, most: int = 12) -> str:
    """The first lines of every stored document, all of our own words."""
    kept: list[str] = []
    inside = 0
    for line in text.splitlines():
        if line.startswith("<document "):
            inside = 1
        elif line.startswith("</document>"):
            if inside > most:
                kept.append("[…]")
            inside = 0
        elif inside:
            inside += 1
            if inside > most:
                continue
        kept.append(line)
    return "\n".join(kept)
