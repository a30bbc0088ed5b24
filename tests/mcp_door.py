"""The API served on a bench's ledger, store and encoder, for tests that come in by the network."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import anyio
import httpx
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from api.app import create_app
from pipeline.settings import Settings
from pipeline.wiring import build
from tests.recall_bench import RecallBench


class Door:
    """A served application on a bench's ledger, store and encoder."""

    def __init__(self, bench: RecallBench, **settings: Any) -> None:
        self.bench = bench
        self.parts = build(Settings(milvus_uri="http://127.0.0.1:1", broker_url="redis://127.0.0.1:1/0", **settings))
        self.parts.__dict__["vectors"] = bench.store
        self.parts.__dict__["embedder"] = bench.encoder
        self.app = create_app(parts=self.parts)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.server = uvicorn.Server(uvicorn.Config(self.app, port=port, log_level="warning"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def start(self) -> None:
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.02)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)

    def run(self, script, **options):
        """Runs ``script(client)`` in one MCP session."""

        async def inside():
            headers = options.pop("headers", {})
            async with create_mcp_http_client(headers=headers) as http:
                transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
                async with Client(transport, **options) as client:
                    return await script(client)

        return anyio.run(inside)

    def call(self, tool: str, headers=None, **arguments):
        async def script(client):
            return await client.call_tool(tool, arguments)

        return self.run(script, headers=headers or {})

    def http(self, method: str, path: str, **options) -> httpx.Response:
        return httpx.request(method, f"{self.url}{path}", timeout=30, **options)
