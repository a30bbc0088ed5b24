"""The HTTP API on a real PostgreSQL: uploads, reads, batches, keys, limits, errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.bell import Bell
from pipeline.answers import LookupAnswer, LookupRequest, NotShown
from pipeline.documents import Lane
from pipeline.settings import Settings
from pipeline.wiring import build

NDJSON = {"Content-Type": "application/x-ndjson"}


class Rings:
    """Stands in for the broker's bell: counts."""

    def __init__(self) -> None:
        self.count = 0

    def ring(self) -> None:
        self.count += 1

    def close(self) -> None:
        return


class Server:
    """The application, its client and its bell."""

    def __init__(self, **settings: Any) -> None:
        self.parts = build(Settings(milvus_uri="http://127.0.0.1:1", memory_url="redis://127.0.0.1:1/0", **settings))
        self.app = create_app(parts=self.parts)
        self.rings = Rings()
        object.__setattr__(self.app.state.services, "bell", self.rings)
        self.client = TestClient(self.app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture
def settings(database_url: str, tmp_path) -> dict[str, Any]:
    return {"database_url": database_url, "broker_url": "redis://127.0.0.1:1/0", "data_dir": tmp_path}


@pytest.fixture
def server(settings) -> Iterator[Server]:
    made = Server(**settings)
    with made.client:
        yield made


@pytest.fixture
def client(server: Server) -> TestClient:
    return server.client


def problem(response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["status"] == status and content["title"] and content["type"] and content["detail"]
    return content


def test_a_new_document_is_accepted_and_the_queue_is_rung(server: Server) -> None:
    answer = server.client.put("/v1/documents/infra/tls.md", json={"title": "TLS", "body": "Renew it."})
    assert answer.status_code == 202
    assert answer.json() == {"key": "infra/tls.md", "version": 1, "state": "pending", "lane": "live"}
    assert answer.headers["etag"] == '"1"'
    assert server.rings.count == 1


def test_the_same_text_again_is_unchanged_and_rings_nothing(server: Server) -> None:
    document = {"title": "TLS", "body": "Renew it."}
    server.client.put("/v1/documents/tls", json=document)
    answer = server.client.put("/v1/documents/tls", json=document, params={"lane": "backfill"})
    assert answer.status_code == 200
    assert answer.json() == {"key": "tls", "version": 1, "state": "unchanged", "lane": "backfill"}
    assert server.rings.count == 1


def test_get_shows_the_state_of_the_newest_version_and_the_served_one(server: Server, ledgers) -> None:
    client = server.client
    generation = ledgers.generation()
    client.put(
        "/v1/documents/a", json={"body": "one", "domain": "infra", "keywords": ["TLS"], "metadata": {"team": "x"}}
    )
    ledgers.prepare()
    ledgers.embed(generation)
    client.put("/v1/documents/a", json={"body": "two"})
    answer = client.get("/v1/documents/a")
    assert answer.headers["etag"] == '"2"'
    found = answer.json()
    assert (found["version"], found["state"], found["live_version"], found["passages"]) == (2, "pending", 1, 2)
    assert found["fingerprint"] == generation.fingerprint
    assert found["domain"] == "default"
    assert "id" not in found


def test_if_match_lets_only_the_version_it_names_be_replaced(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "one"})
    refused = client.put("/v1/documents/a", json={"body": "two"}, headers={"If-Match": '"7"'})
    assert problem(refused, 412)["version"] == 1
    assert client.put("/v1/documents/a", json={"body": "two"}, headers={"If-Match": '"1"'}).status_code == 202
    assert (
        problem(client.put("/v1/documents/a", json={"body": "x"}, headers={"If-Match": "2"}), 422)["field"]
        == "If-Match"
    )
    assert problem(client.delete("/v1/documents/a", headers={"If-Match": '"1"'}), 412)["version"] == 2


def test_an_older_revision_is_a_conflict(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "new", "revision": 5})
    assert problem(client.put("/v1/documents/a", json={"body": "old", "revision": 4}), 409)["field"] == "revision"


def test_delete_answers_when_the_document_is_dead_and_the_version_goes_on(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "one"})
    assert client.delete("/v1/documents/a").json() == {"key": "a", "version": 2, "state": "deleted"}
    assert client.get("/v1/documents/a").json()["state"] == "deleted"
    problem(client.delete("/v1/documents/a"), 404)
    again = client.put("/v1/documents/a", json={"body": "one"})
    assert (again.status_code, again.json()["version"]) == (202, 3)


def test_the_key_of_the_body_must_be_that_of_the_path(client: TestClient) -> None:
    assert client.put("/v1/documents/a/b", json={"key": "a/b", "body": "x"}).status_code == 202
    assert problem(client.put("/v1/documents/a/b", json={"key": "a/c", "body": "x"}), 422)["field"] == "key"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"body": "x", "colour": "red"}, "colour"),
        ({"title": "nothing in it"}, "body"),
        ({"body": "x", "domain": "d" * 65}, "domain"),
        ({"body": "x", "keywords": ["k", "y" * 129]}, "keywords[1]"),
        ({"events": [{"at": "yesterday", "blocks": [{"type": "text", "text": "x"}]}]}, "events[0].at"),
    ],
)
def test_an_error_names_the_field(client: TestClient, body: dict[str, Any], field: str) -> None:
    found = problem(client.put("/v1/documents/a", json=body), 422)
    assert found["field"] == field
    assert found["type"] == "urn:wellhead:problem:invalid-input"


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b'{"body": NaN}', b"[" * 100_000])
def test_what_is_no_json_object_is_a_problem_and_not_a_crash(client: TestClient, content: bytes) -> None:
    problem(client.put("/v1/documents/a", content=content), 422)


def test_an_unknown_path_and_a_wrong_method_are_problems_too(client: TestClient) -> None:
    problem(client.get("/v1/nothing"), 404)
    problem(client.post("/v1/status"), 405)
    problem(client.get("/v1/documents/never"), 404)


def test_an_idempotency_key_replays_the_answer_and_refuses_another_body(server: Server) -> None:
    client, headers = server.client, {"Idempotency-Key": "k1"}
    first = client.put("/v1/documents/a", json={"body": "one"}, headers=headers)
    client.put("/v1/documents/a", json={"body": "two"})
    again = client.put("/v1/documents/a", json={"body": "one"}, headers=headers)
    assert (
        (again.status_code, again.json()) == (first.status_code, first.json()) == (202, {**first.json(), "version": 1})
    )
    assert client.get("/v1/documents/a").json()["version"] == 2
    other = client.put("/v1/documents/a", json={"body": "three"}, headers=headers)
    assert problem(other, 422)["field"] == "Idempotency-Key"
    elsewhere = client.put("/v1/documents/b", json={"body": "one"}, headers=headers)
    assert problem(elsewhere, 422)["field"] == "Idempotency-Key"


def test_a_refused_request_frees_its_idempotency_key(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "one"})
    headers = {"Idempotency-Key": "k1", "If-Match": '"9"'}
    problem(client.put("/v1/documents/a", json={"body": "two"}, headers=headers), 412)
    assert (
        client.put("/v1/documents/a", json={"body": "two"}, headers={**headers, "If-Match": '"1"'}).status_code == 202
    )


def test_a_list_is_filtered_and_paged_by_key(client: TestClient) -> None:
    for number in range(7):
        domain = "odd" if number % 2 else "even"
        client.put(f"/v1/documents/n/{number}", json={"body": f"text {number}", "domain": domain})
    client.put(
        "/v1/documents/other",
        json={"events": [{"at": "2026-01-01T00:00:00Z", "blocks": [{"type": "text", "text": "x"}]}]},
    )
    keys, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = client.get(
            "/v1/documents", params={"prefix": "n/", "limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        keys += [d["key"] for d in page["documents"]]
        cursor, pages = page["cursor"], pages + 1
    assert keys == [f"n/{n}" for n in range(7)] and pages == 3
    assert [d["key"] for d in client.get("/v1/documents", params={"domain": "odd"}).json()["documents"]] == [
        "n/1",
        "n/3",
        "n/5",
    ]
    assert [d["key"] for d in client.get("/v1/documents", params={"kind": "episode"}).json()["documents"]] == ["other"]
    assert client.get("/v1/documents", params={"state": "searchable"}).json() == {"documents": [], "cursor": None}
    assert problem(client.get("/v1/documents", params={"state": "lost"}), 422)["field"] == "state"
    assert problem(client.get("/v1/documents", params={"cursor": "%%"}), 422)["field"] == "cursor"
    assert problem(client.get("/v1/documents", params={"limit": 0}), 422)["field"] == "limit"


def test_states_of_many_documents_leave_unknown_keys_out(client: TestClient) -> None:
    client.put("/v1/documents/a", json={"body": "one"})
    found = client.post("/v1/documents:states", json={"keys": ["a", "never"]}).json()["documents"]
    assert found == [{"key": "a", "version": 1, "state": "pending", "live_version": None, "passages": 0, "tokens": 0}]
    assert (
        problem(client.post("/v1/documents:states", json={"keys": [], "more": 1}), 422)["errors"][0]["field"] == "keys"
    )


def lines(*documents: Any) -> bytes:
    return b"".join((d if isinstance(d, bytes) else json.dumps(d).encode()) + b"\n" for d in documents)


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
    assert found[4]["key"] == "c" and found[4]["version"] == 1
    assert server.rings.count == 1
    assert [d["key"] for d in server.client.get("/v1/documents").json()["documents"]] == ["a", "c", "old"]


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


def test_without_keys_only_this_machine_is_served(settings) -> None:
    server = Server(**settings)
    assert server.client.get("/v1/documents").status_code == 200
    problem(server.client.get("/v1/documents", headers={"Host": "evil.example"}), 403)
    problem(server.client.post("/v1/documents:batch", content=b"", headers={"Origin": "https://evil.example"}), 403)
    assert server.client.get("/v1/documents", headers={"Origin": "http://localhost:8420"}).status_code == 200
    outside = TestClient(server.app, base_url="http://10.0.0.5", headers={"Host": "127.0.0.1"})
    problem(outside.get("/v1/documents"), 403)


def test_a_key_decides_the_tenant_and_what_may_be_done(server: Server) -> None:
    reader, _ = server.parts.keys.create("acme", "reader", ["read"])
    writer, made = server.parts.keys.create("acme", "writer", ["write"])
    boss, _ = server.parts.keys.create("other", "boss", ["admin"])
    server.app.state.services.gate._seen.clear()
    client = server.client
    answer = client.get("/v1/documents")
    problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    problem(client.get("/v1/documents", headers={"Authorization": "Bearer wh_wrong"}), 401)

    def bearer(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    refused = client.put("/v1/documents/a", json={"body": "x"}, headers=bearer(reader))
    assert problem(refused, 403)["scope"] == "write"
    assert client.put("/v1/documents/a", json={"body": "x"}, headers=bearer(writer)).status_code == 202
    problem(client.get("/v1/documents/a", headers=bearer(writer)), 403)
    assert client.get("/v1/documents/a", headers={"X-API-Key": reader}).json()["key"] == "a"
    problem(client.get("/v1/documents/a", headers=bearer(boss)), 404)
    assert client.put("/v1/documents/a", json={"body": "y"}, headers=bearer(boss)).json()["version"] == 1
    outside = TestClient(server.app, base_url="http://wellhead.example")
    assert outside.get("/v1/documents", headers=bearer(reader)).status_code == 200

    server.parts.keys.revoke(made.prefix)
    server.app.state.services.gate._seen.clear()
    problem(client.put("/v1/documents/a", json={"body": "z"}, headers=bearer(writer)), 401)


def test_every_route_that_tells_or_changes_something_needs_a_key(server: Server) -> None:
    server.parts.keys.create("acme", "one", ["read"])
    open_to_all = {"/healthz", "/readyz"}
    paths = server.client.get("/openapi.json").json()["paths"]
    assert open_to_all < set(paths)
    for path, methods in paths.items():
        for method in methods:
            asked = path.replace("{generation}", "1").replace("{key}", "a")
            status = server.client.request(method, asked).status_code
            assert status == 401 or path in open_to_all, (method, path, status)


def test_another_host_than_loopback_needs_a_key_to_start(settings) -> None:
    with pytest.raises(SystemExit, match=r"^Without an API key .* not on 0\.0\.0\.0 \(WELLHEAD_API_HOST\): make a key"):
        create_app(Settings(**settings, api_host="0.0.0.0"))
    build(Settings(**settings)).keys.create("default", "first", ["admin"])
    assert create_app(Settings(**settings, api_host="0.0.0.0")) is not None


def test_only_a_hash_of_a_key_is_stored(server: Server, ledgers) -> None:
    secret, _ = server.parts.keys.create("acme", "one", ["read"])
    stored = ledgers.rows("SELECT * FROM api_key")[0]
    assert secret not in str(stored) and secret.startswith(stored["prefix"]) and len(secret) >= 43


def test_health_asks_nothing_and_readiness_asks_every_part(server: Server, ledgers) -> None:
    assert server.client.get("/healthz").json() == {"status": "ok"}
    answer = server.client.get("/readyz")
    assert answer.status_code == 200
    parts = answer.json()["parts"]
    assert set(parts) == {"postgresql", "broker", "action_memory", "milvus", "encoder", "generation"}
    assert (parts["postgresql"], parts["broker"], parts["generation"]) == ("ok", "down", "missing")


def test_without_postgresql_the_server_lives_but_is_not_ready(settings) -> None:
    server = Server(**{**settings, "database_url": "postgresql+psycopg://nobody@127.0.0.1:1/x"})
    assert server.client.get("/healthz").status_code == 200
    answer = server.client.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]["postgresql"]) == (503, "down")


def test_status_counts_what_is_there_and_what_waits(server: Server, ledgers) -> None:
    generation = ledgers.generation()
    server.client.put("/v1/documents/a", json={"body": "one"})
    ledgers.prepare()
    ledgers.embed(generation)
    server.client.put("/v1/documents/b", json={"body": "two"}, params={"lane": "backfill"})
    ledgers.prepare(pieces=3, lane=Lane.BACKFILL)
    server.client.put("/v1/documents/c", json={"body": "three"})
    server.client.put("/v1/documents/d", json={"body": "four"})
    server.client.delete("/v1/documents/d")
    found = server.client.get("/v1/status").json()
    assert {k: v for k, v in found["documents"].items() if v} == {"pending": 2, "searchable": 1, "deleted": 1}
    live, backfill = found["pending"]["live"], found["pending"]["backfill"]
    assert (live["documents"], live["passages"], backfill["documents"], backfill["passages"]) == (1, 0, 0, 3)
    assert backfill["tokens"] == 30 and live["oldest_seconds"] > 0 and backfill["oldest_seconds"] > 0
    assert found["encoding"]["passages"] == 1 and found["encoding"]["tokens_per_s"] > 0
    assert found["upload_to_searchable"]["live"]["count"] == 1
    assert found["parts"]["postgresql"] == {"state": "ok", "detail": None}
    assert found["parts"]["broker"]["state"] == "down" and found["parts"]["broker"]["detail"]


def test_generations_say_how_complete_they_are(server: Server, ledgers) -> None:
    generation = ledgers.generation()
    server.client.put("/v1/documents/a", json={"body": "one"})
    ledgers.prepare()
    ledgers.embed(generation)
    server.client.put("/v1/documents/b", json={"body": "two"})
    (found,) = server.client.get("/v1/generations").json()["generations"]
    assert (found["fingerprint"], found["status"]) == (generation.fingerprint, "serving")
    assert (found["documents_done"], found["documents_eligible"], found["coverage"]) == (1, 2, 0.5)
    assert (found["tokens_done"], found["tokens_total"], found["parked"]) == (20, 40, 0)


def test_metrics_are_read_from_the_ledger(server: Server, ledgers) -> None:
    ledgers.generation()
    server.client.put("/v1/documents/a", json={"body": "one"})
    ledgers.prepare(pieces=2)
    text = server.client.get("/metrics").text
    assert 'wellhead_documents{state="pending"} 1.0' in text
    assert 'wellhead_pending_passages{lane="live"} 2.0' in text
    assert 'wellhead_pending_tokens{lane="live"} 20.0' in text
    assert "wellhead_parked_passages 0.0" in text


class FakeLookup:
    """Remembers what it was asked."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    def lookup(self, request: LookupRequest) -> LookupAnswer:
        return LookupAnswer(
            invocation_id="i1",
            found=False,
            relevance_level=None,
            completeness_hint=f"{self.tenant}: {request.query}",
            message=str(request.refetch),
            primary=None,
            not_shown=NotShown(below_floor=3),
        )


def test_a_lookup_is_passed_on_with_the_tenant_and_answered_in_full(server: Server) -> None:
    server.parts.lookup = FakeLookup  # type: ignore[method-assign,assignment]
    answer = server.client.post("/v1/lookup", json={"query": "tls?", "refetch": ["a"], "session_id": "s"}).json()
    assert answer["completeness_hint"] == "default: tls?"
    assert answer["message"] == "('a',)"
    assert set(answer) == {
        "invocation_id", "found", "relevance_level", "completeness_hint", "message", "primary", "supplement",
        "retrieved_domains_this_session", "deduped", "not_shown", "action_memory", "degraded",
    }  # fmt: skip
    assert answer["not_shown"] == {"below_floor": 3, "pending_in_domain": 0}


def test_a_lookup_refuses_unknown_fields_and_questions_that_are_too_long(server: Server) -> None:
    assert problem(server.client.post("/v1/lookup", json={"query": "x", "top_k": 3}), 422)["field"] == "top_k"
    assert problem(server.client.post("/v1/lookup", json={}), 422)["field"] == "query"
    long = problem(server.client.post("/v1/lookup", json={"query": "x" * 4001}), 422)
    assert (long["field"], long["limit"]) == ("query", 4000)


def test_a_frozen_broker_delays_no_answer_and_rings_do_not_pile_up(settings) -> None:
    server = Server(**settings)
    frozen, sent = threading.Event(), []

    def send() -> bool:
        sent.append(1)
        frozen.wait(30)
        return True

    bell = Bell(send)
    object.__setattr__(server.app.state.services, "bell", bell)
    for number in range(20):
        assert server.client.put(f"/v1/documents/{number}", json={"body": "x"}).status_code == 202
    assert len(sent) == 1
    frozen.set()
    bell.close(30)
    assert len(sent) == 2


def test_the_documentation_shows_the_upload_body(client: TestClient) -> None:
    page = client.get("/openapi.json").json()
    assert page["components"]["schemas"]["DocumentIn"]["properties"]["events"]
    assert "EventIn" in page["components"]["schemas"]
    assert client.get("/docs").status_code == 200


def test_requests_at_the_same_time_with_one_idempotency_key_store_once(server: Server, monkeypatch) -> None:
    entered, go = threading.Event(), threading.Event()
    receive = server.parts.documents.receive

    def slow(*arguments: Any) -> Any:
        entered.set()
        go.wait(30)
        return receive(*arguments)

    monkeypatch.setattr(server.parts.documents, "receive", slow)
    answers = []

    def put() -> None:
        answers.append(server.client.put("/v1/documents/a", json={"body": "x"}, headers={"Idempotency-Key": "k"}))

    first = threading.Thread(target=put)
    first.start()
    assert entered.wait(30)
    second = server.client.put("/v1/documents/a", json={"body": "x"}, headers={"Idempotency-Key": "k"})
    assert "still running" in problem(second, 409)["detail"]
    assert second.headers["retry-after"] == "1"
    go.set()
    first.join(30)
    assert answers[0].status_code == 202
    assert server.client.get("/v1/documents/a").json()["version"] == 1
