"""An agent of twenty steps at ``/mcp`` and at ``wellhead mcp``, with clients that are not ours.

Real PostgreSQL, Valkey, Milvus Lite and the bundled encoder; the workers' stages run in this process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from pipeline.adapters.milvus import MilvusVectors
from pipeline.documents import Lane
from pipeline.limits import Limits
from pipeline.reading import read_bytes
from pipeline.receive import receive
from pipeline.settings import Settings
from pipeline.validation import validate
from tests.acceptance.agent_run import InspectorDriver, Result, Run, SdkDriver, transcript, twenty_steps
from tests.mcp_door import Door
from tests.plugins.milvus_server import milvus_uri
from tests.recall_bench import RecallBench

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPT = ROOT / "docs" / "mcp-transcript.md"
WELLHEAD = [sys.executable, "-m", "ops.cli"]

pytestmark = pytest.mark.slow
__all__ = ["milvus_uri"]


@pytest.fixture
def door(ledgers, onnx_embedder, milvus_uri, database_url, memory_url, tmp_path) -> Iterator[Door]:
    bench = RecallBench(ledgers, encoder=onnx_embedder, store=MilvusVectors(milvus_uri), rule="r1:400")
    fill(bench)
    made = Door(bench, database_url=database_url, memory_url=memory_url, data_dir=tmp_path)
    made.start()
    yield made
    made.stop()


def fill(bench: RecallBench) -> None:
    limits = Limits.from_settings(Settings())
    wanted = ("infrastructure", "payments")
    for path in sorted(p for d in wanted for p in (ROOT / "ops" / "demo" / d).glob("*.md")):
        for upload in read_bytes(f"{path.parent.name}/{path.name}", path.read_bytes(), limits):
            receive(bench.ledgers.documents, "default", upload, Lane.BACKFILL)
    for line in (ROOT / "tests" / "quality" / "episodes" / "zh.jsonl").read_text("utf-8").splitlines()[:8]:
        receive(bench.ledgers.documents, "default", validate(json.loads(line), limits), Lane.BACKFILL)
    bench.embed()


def check(run: Run) -> None:
    assert len(run.steps) == 20
    assert not [s for s in run.steps if s[3].error]
    assert run.handed, "the denominator: something was handed out at all"
    assert len(set(run.handed)) == len(run.handed), "no document is handed out twice"
    results: list[Result] = [s[3] for s in run.steps]
    levels = [r.structure["relevance_level"] for r in results[:12]]
    assert levels[0] in {"PRECISE", "HIGHLY_RELEVANT"}
    assert results[0].structure["primary"]["key"].endswith("connection-pool-config.md")
    assert levels[3] == "PRECISE" and results[3].structure["primary"]["key"].endswith("gateway-timeouts.md")
    # The run ends by the stop signals: whatever the agent repeats is answered with one, and with no text.
    for at in (1, 2, 4, 9, 10, 11):
        assert levels[at] == "DEDUPED", (at, levels)
        assert "<document" not in results[at].text
    assert not results[7].structure["found"] and not results[8].structure["found"]
    assert "停止检索" in results[8].text
    taken, gone, settled, after = results[13], results[14], results[15], results[16]
    assert taken.structure["episodes"][0]["key"] == settled.structure["keys"][0] == "work/gateway-port-first"
    assert results[12].structure["episodes"][0]["relevance_level"] == "PRECISE"
    for empty in (gone, after):
        assert "work/gateway-port-first" not in [e["key"] for e in empty.structure["episodes"]]
    committed = results[17].structure["key"]
    assert results[18].structure["episodes"][0]["key"] == committed
    assert results[19].structure == {
        **results[17].structure,
        **{k: results[19].structure[k] for k in ("state", "invocation_id")},
    }
    assert results[19].structure["state"] == "unchanged"


def test_twenty_steps_with_the_official_client(door):
    with SdkDriver(door.url) as driver:
        run = Run(driver, door.bench.embed)
        twenty_steps(run)
    check(run)
    rows = rows_by_tool(door)
    assert rows == {"lookup_knowledge": 12, "doc_query": 5, "doc_commit": 2}
    written = transcript(run)
    if os.environ.get("WELLHEAD_WRITE_TRANSCRIPT"):
        TRANSCRIPT.parent.mkdir(exist_ok=True)
        TRANSCRIPT.write_text(written, "utf-8")
    assert steps_of(TRANSCRIPT.read_text("utf-8")) == steps_of(written), "write it again: WELLHEAD_WRITE_TRANSCRIPT=1"


def rows_by_tool(door: Door) -> dict[str, int]:
    door.parts.invocations.flush()
    found = door.bench.ledgers.rows("SELECT tool_name, count(*) AS n FROM tool_invocation GROUP BY 1")
    return {r["tool_name"]: r["n"] for r in found}


def steps_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(("## ", "**"))]


def test_stdio_is_the_same_door(door):
    import anyio

    environment = {**os.environ, "WELLHEAD_API_URL": door.url, "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(command=WELLHEAD[0], args=[*WELLHEAD[1:], "mcp"], env=environment)

    async def script():
        async with Client(stdio_client(server)) as client:
            names = [t.name for t in (await client.list_tools()).tools]
            answers = [await client.call_tool("lookup_knowledge", {"query": "ERR_TIMEOUT 是什么？"}) for _ in range(2)]
            read = await client.read_resource("wellhead://knowledge-map")
            return names, answers, read

    names, answers, read = anyio.run(script)
    assert names == ["lookup_knowledge", "doc_query", "doc_commit", "doc_ack"]
    assert [a.structured_content["relevance_level"] for a in answers] == ["PRECISE", "DEDUPED"]
    assert "infrastructure" in read.contents[0].text
    # The end of input ended the session: its memory is gone with it.
    found = door.bench.ledgers.rows("SELECT DISTINCT session_id FROM tool_invocation") or settle(door)
    for row in found:
        assert door.http("GET", f"/v1/sessions/{row['session_id']}").status_code == 404


def settle(door: Door):
    door.parts.invocations.flush()
    return door.bench.ledgers.rows("SELECT DISTINCT session_id FROM tool_invocation")


def inspector() -> None:
    """Skips where npm cannot fetch the inspector."""
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed")
    try:
        made = subprocess.run(
            ["npx", "-y", "@modelcontextprotocol/inspector", "--cli", "--help"], capture_output=True, timeout=240
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not fetch @modelcontextprotocol/inspector within four minutes")
    if made.returncode != 0:
        pytest.skip(f"npm cannot fetch @modelcontextprotocol/inspector: {made.stderr[-200:]!r}")


@pytest.mark.timeout(900)
def test_twenty_steps_with_the_inspector(door):
    inspector()
    environment = {"WELLHEAD_API_URL": door.url, "PYTHONPATH": str(ROOT)}
    driver = InspectorDriver(WELLHEAD, environment, "inspected")
    tools = driver.run("tools/list")["tools"]
    assert [t["name"] for t in tools] == ["lookup_knowledge", "doc_query", "doc_commit", "doc_ack"]
    run = Run(driver, door.bench.embed)
    twenty_steps(run)
    check(run)
