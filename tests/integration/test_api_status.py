"""Who may ask the HTTP API, and what it says of itself: health, status, generations, metrics."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from pipeline.documents import Lane
from pipeline.settings import Settings
from pipeline.wiring import build
from tests.integration.api_server import Server, problem


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
