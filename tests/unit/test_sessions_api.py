"""``/v1/sessions`` over an action memory in this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api import errors
from api.auth import Caller
from api.routes import sessions
from pipeline.action_memory import Session
from tests.contracts_memory import ask, offer
from tests.fakes_memory import FakeActionMemory


class OneTenant:
    """Admits everybody as a caller of one tenant."""

    def __init__(self) -> None:
        self.tenant = "acme"

    def admit(self, request, secret, scope):
        return Caller(tenant=self.tenant, key="k", scopes=frozenset({scope}))


@pytest.fixture
def memory() -> FakeActionMemory:
    return FakeActionMemory()


@pytest.fixture
def gate() -> OneTenant:
    return OneTenant()


@pytest.fixture
def client(memory, gate):
    app = FastAPI()
    app.state.services = SimpleNamespace(parts=SimpleNamespace(memory=memory), gate=gate)
    errors.install(app)
    app.include_router(sessions.router)
    with TestClient(app) as client:
        yield client


def look(memory, session_id, *offers, **fields):
    return ask(memory, *offers, session=Session(tenant="acme", session_id=session_id), **fields)


def test_a_session_is_shown_by_domain(client, memory):
    look(memory, "a/b 会话", offer("pool"), offer("pay", (1, 3), domain="payments"), query="连接池", level="PRECISE")
    look(memory, "a/b 会话", domain="payments")
    look(memory, "a/b 会话")
    answer = client.get("/v1/sessions/a/b 会话")
    assert answer.status_code == 200
    assert answer.json() == {
        "session_id": "a/b 会话",
        "retrieved_domains": ["infrastructure", "payments"],
        "domains": [
            {
                "domain": "infrastructure",
                "answered": True,
                "empty_answers": 0,
                "documents": [{"key": "pool", "title": "About pool", "version": 1, "passages": None, "refetched": 0}],
            },
            {
                "domain": "payments",
                "answered": False,
                "empty_answers": 1,
                "documents": [{"key": "pay", "title": "About pay", "version": 1, "passages": [1, 3], "refetched": 0}],
            },
            {"domain": None, "answered": False, "empty_answers": 1, "documents": []},
        ],
        "questions": [{"query": "连接池", "domain": "infrastructure", "relevance_level": "PRECISE"}],
    }


def test_another_tenant_sees_and_clears_nothing(client, memory, gate):
    look(memory, "s", offer("pool"))
    gate.tenant = "other"
    assert client.get("/v1/sessions/s").status_code == 404
    assert client.delete("/v1/sessions/s").json() == {"session_id": "s", "cleared": False}
    gate.tenant = "acme"
    assert client.get("/v1/sessions/s").status_code == 200


def test_clearing_hands_documents_out_again(client, memory):
    look(memory, "s", offer("pool"))
    assert client.delete("/v1/sessions/s").json() == {"session_id": "s", "cleared": True}
    assert client.get("/v1/sessions/s").status_code == 404
    assert [h.key for h in look(memory, "s", offer("pool")).handed] == ["pool"]


def test_a_memory_that_is_down_is_503_and_an_endless_id_422(client, memory):
    memory.down = True
    down = client.get("/v1/sessions/s")
    assert down.status_code == 503
    assert "Retry-After" in down.headers
    assert client.delete("/v1/sessions/" + "x" * 257).status_code == 422
