"""The HTTP API on a real PostgreSQL: single documents, lists, repeated requests, lookups."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.bell import Bell
from pipeline.answers import LookupAnswer, LookupRequest, NotShown
from tests.integration.api_server import Server, problem


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
