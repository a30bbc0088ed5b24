"""The four scenarios of the original, over HTTP, with the demo's documents.

Real PostgreSQL, Valkey, Milvus Lite and the bundled encoder; the workers' stages run in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.adapters.milvus import MilvusVectors
from pipeline.documents import Lane
from pipeline.limits import Limits
from pipeline.reading import read_file
from pipeline.receive import receive
from pipeline.walking import walk
from tests.mcp_door import Door
from tests.plugins.milvus_server import milvus_uri
from tests.recall_bench import RecallBench

DEMO = Path(__file__).resolve().parents[2] / "ops" / "demo"

pytestmark = pytest.mark.slow
__all__ = ["milvus_uri"]


@pytest.fixture
def door(ledgers, onnx_embedder, milvus_uri, database_url, memory_url, tmp_path) -> Iterator[Door]:
    bench = RecallBench(ledgers, encoder=onnx_embedder, store=MilvusVectors(milvus_uri), rule="r1:400")
    for found in walk([DEMO / "infrastructure", DEMO / "payments"]):
        for upload in read_file(found, Limits()):
            receive(bench.ledgers.documents, "default", upload, Lane.BACKFILL)
    bench.embed()
    made = Door(bench, database_url=database_url, memory_url=memory_url, data_dir=tmp_path)
    made.start()
    yield made
    made.stop()


def lookup(door: Door, query: str, **fields: Any) -> dict[str, Any]:
    answer = door.http("POST", "/v1/lookup", json={"query": query, **{"session_id": "s", **fields}})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_four_scenarios(door: Door):
    # 1. One question, one answer, and the words that end the search.
    pool = lookup(door, "数据库连接池怎么配置？")
    assert pool["found"]
    assert pool["primary"]["title"] == "数据库连接池配置规范"
    assert pool["relevance_level"] in {"PRECISE", "HIGHLY_RELEVANT", "REFERENCE"}
    assert pool["retrieved_domains_this_session"] == ["infrastructure"]
    assert pool["completeness_hint"]

    # 2. The same again in other words brings nothing new, and says so.
    again = lookup(door, "数据库连接池该怎么配置")
    assert (again["relevance_level"], again["primary"]) == ("DEDUPED", None)
    assert pool["primary"]["key"] in {d["key"] for d in again["deduped"]}
    assert again["retrieved_domains_this_session"] == ["infrastructure"]

    # 3. A code that one document holds is precise, and the hint says that there is nothing better.
    code = lookup(door, "ERR_TIMEOUT 是什么？")
    assert code["relevance_level"] == "PRECISE"
    assert code["completeness_hint"] == "知识库中不存在比上述结果更精准的文档"
    assert code["primary"]["title"] == "Card gateway timeouts"

    # 4. A name inside a wider question is a reference; the missing aspect is asked for and brings another document.
    wider = lookup(door, "生产环境出现 ENOSPC 和 ERR_POOL_WAIT 时分别看哪里", session_id="other")
    assert wider["relevance_level"] in {"REFERENCE", "HIGHLY_RELEVANT"}
    seen = {wider["primary"]["key"], *(s["key"] for s in wider["supplement"])}
    more = lookup(door, "canary release", session_id="other", missing_aspect="如何灰度发布并回滚")
    assert more["primary"] is not None
    assert more["primary"]["key"] not in seen


def test_every_scenario_left_its_row_and_the_report_counts_them(door: Door):
    lookup(door, "ERR_TIMEOUT")
    lookup(door, "ERR_TIMEOUT")
    door.parts.invocations.flush()
    report = door.http("GET", "/v1/report").json()
    assert {r["relevance_level"]: r["count"] for r in report["relevance_levels"]} == {"PRECISE": 1, "DEDUPED": 1}
    assert {r["dedup_reason"] for r in report["dedup_reasons"]} > {None}
    assert sum(r["count"] for r in report["similarities"]) >= 1


def test_an_answer_is_labelled_and_the_map_in_use_is_shown(door: Door):
    answer = lookup(door, "ERR_TIMEOUT")
    stored = door.http("POST", "/v1/feedback", json={"invocation_id": answer["invocation_id"], "relevant": True})
    assert stored.status_code == 201, stored.text
    assert (stored.json()["key"], stored.json()["counted"]) == (answer["primary"]["key"], True)
    wrong = door.http("POST", "/v1/feedback", json={"invocation_id": "none", "relevant": True})
    assert wrong.status_code == 404
    shown = door.http("GET", "/v1/calibration").json()
    assert (shown["in_use"], shown["calibrations"]) == ("shipped", [])
    assert door.http("POST", "/v1/calibration", json={"action": "use", "id": 7}).status_code == 404
    assert door.http("POST", "/v1/calibration", json={"action": "use"}).status_code == 422


def test_a_paraphrase_is_found_and_a_stranger_is_not(door: Door):
    shop = lookup(door, "browsers warn visitors that our shop is not secure since this morning")
    assert shop["found"]
    assert shop["primary"]["key"].endswith("tls-certificates.md")
    assert not lookup(door, "how often should I water a bonsai tree in winter")["found"]
