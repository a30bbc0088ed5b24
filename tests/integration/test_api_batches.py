"""Many documents in one HTTP request, and what is refused when there are too many or nowhere to put them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.integration.api_server import NDJSON, Server, lines, problem


def test_a_bad_line_of_a_batch_never_loses_the_others(server: Server) -> None:
    server.client.put("/v1/documents/old", json={"body": "x", "revision": 9})
    server.rings.count = 0
    body = lines(
        {"key": "a", "body": "one"},
        b"{not json",
        b"",
        {"key": "old", "body": "late", "revision": 1},
        {"key": "b", "body": "two", "size": 3},
        {"key": "c", "body": "three"},
    )
    answer = server.client.post("/v1/documents:batch", content=body, headers=NDJSON)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [f["line"] for f in found] == [1, 2, 4, 5, 6]
    assert found[0] == {"line": 1, "key": "a", "version": 1, "state": "pending", "lane": "backfill"}
    assert (found[1]["status"], found[2]["status"], found[3]["field"]) == (422, 409, "size")
    assert (found[4]["key"], found[4]["version"], found[4]["state"]) == ("c", 1, "pending")
    assert server.rings.count == 1
    assert [d["key"] for d in server.client.get("/v1/documents").json()["documents"]] == ["a", "c", "old"]


def test_what_is_new_behind_a_refused_line_is_new_and_wakes_the_workers(server: Server) -> None:
    server.client.put("/v1/documents/old", json={"body": "x", "revision": 9})
    server.rings.count = 0
    body = lines({"key": "old", "body": "late", "revision": 1}, {"key": "a", "body": "one"})
    answer = server.client.post("/v1/documents:batch", content=body, headers={**NDJSON, "Accept": "application/json"})
    assert {k: answer.json()[k] for k in ("changed", "unchanged", "failed")} == {
        "changed": 1,
        "unchanged": 0,
        "failed": 1,
    }
    assert server.rings.count == 1


def test_a_batch_answers_a_summary_to_who_wants_json(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "one"})
    body = lines({"key": "a", "body": "one"}, {"key": "b", "body": "two"}, {"key": "", "body": "three"})
    answer = client.post("/v1/documents:batch", content=body, headers={**NDJSON, "Accept": "application/json"}).json()
    assert {name: answer[name] for name in ("documents", "changed", "unchanged", "failed")} == {
        "documents": 3, "changed": 1, "unchanged": 1, "failed": 1,
    }  # fmt: skip
    assert [(p["line"], p["field"]) for p in answer["problems"]] == [(3, "key")]


def test_a_key_twice_in_one_batch_ends_with_the_last_text(client: TestClient) -> None:
    answer = client.post("/v1/documents:batch", content=lines({"key": "a", "body": "one"}, {"key": "a", "body": "two"}))
    assert [json.loads(line)["version"] for line in answer.text.splitlines()] == [1, 2]


def test_unchanged_documents_of_a_batch_cost_one_query_a_chunk(server: Server, monkeypatch) -> None:
    monkeypatch.setattr("api.routes.batch.CHUNK_LINES", 20)
    body = lines(*({"key": f"d{n}", "body": f"text number {n}"} for n in range(50)))
    server.client.post("/v1/documents:batch", content=body)
    asked = []
    unchanged = server.parts.documents.unchanged
    monkeypatch.setattr(server.parts.documents, "unchanged", lambda *a: asked.append(1) or unchanged(*a))
    monkeypatch.setattr(server.parts.documents, "receive", lambda *a: pytest.fail("an unchanged document was stored"))
    answer = server.client.post("/v1/documents:batch", content=body)
    assert [json.loads(line)["state"] for line in answer.text.splitlines()] == ["unchanged"] * 50
    assert len(asked) == 3


def test_files_are_read_as_the_command_line_reads_them(server: Server) -> None:
    files = [
        ("file", ("tls.md", b"---\ncategory: infra\ntags: [TLS]\n---\n# Renew\n\ntext", "text/markdown")),
        ("file", ("page.html", "<title>证书</title><p>续期</p>".encode(), "text/html")),
        ("file", ("image.png", b"\x89PNG", "image/png")),
        ("file", ("two.jsonl", lines({"key": "x", "body": "1"}, {"key": "y"}), "application/x-ndjson")),
    ]
    answer = server.client.post("/v1/files", files=files, data={"domain": "docs", "prefix": "up/"})
    assert answer.status_code == 202
    assert [d["key"] for d in answer.json()["documents"]] == ["up/tls.md", "up/page.html", "x"]
    assert [(r["name"], r["reason"]) for r in answer.json()["refused"]] == [
        ("up/image.png", "unsupported"),
        ("up/two.jsonl:2", "invalid"),
    ]
    assert server.client.get("/v1/documents/up/tls.md").json()["domain"] == "infra"
    assert server.client.get("/v1/documents/up/page.html").json()["domain"] == "docs"
    assert server.rings.count == 1


@pytest.mark.parametrize("told", [True, False])
def test_a_body_over_the_limit_is_refused_before_it_is_read_whole(settings, told: bool) -> None:
    server = Server(**settings, max_batch_bytes=2000)
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b'{"key": "a", "body": "x"}\n' * 10

    content: Any = b"".join(chunks()) if told else chunks()
    found = problem(server.client.post("/v1/documents:batch", content=content), 413)
    assert found["limit"] == 2000
    assert "WELLHEAD_MAX_BATCH_BYTES" in found["detail"]
    assert server.client.get("/v1/documents").json()["documents"] == []


def test_over_the_cap_the_tenant_is_told_to_come_back(settings) -> None:
    server = Server(**settings, pending_cap=3)
    for number in range(3):
        server.client.put(f"/v1/documents/{number}", json={"body": "x"})
    server.app.state.services.pressure._counted.clear()
    answer = server.client.put("/v1/documents/more", json={"body": "x"})
    assert problem(answer, 429)["retry_after"] == 5.0
    assert answer.headers["retry-after"] == "5"
    assert server.client.put("/v1/documents/more", json={"body": "x"}, params={"lane": "backfill"}).status_code == 202


def test_a_database_that_is_down_is_a_503_with_retry_after_and_no_address(settings) -> None:
    server = Server(**{**settings, "database_url": "postgresql+psycopg://nobody:secret@127.0.0.1:1/x"})
    for answer in (
        server.client.put("/v1/documents/a", json={"body": "x"}),
        server.client.post("/v1/documents:batch", content=lines({"key": "a", "body": "x"})),
    ):
        found = problem(answer, 503)
        assert found["part"] == "postgresql" and "127.0.0.1" not in answer.text
        assert int(answer.headers["retry-after"]) > 0
