"""The knowledge map, the prompts and the domains over HTTP and on the command line."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api import errors
from api.auth import Gate
from api.deps import services
from api.routes import knowledge_map, prompts
from pipeline.llm import estimate_tokens
from pipeline.settings import Settings
from pipeline.wiring import build


@pytest.fixture
def parts(ledgers, database_url):
    made = build(Settings(database_url=database_url))
    made.llm.maps.recheck = 0.0
    yield made
    made.engine.dispose()


@pytest.fixture
def client(parts):
    app = FastAPI()
    errors.install(app)
    for module in (knowledge_map, prompts):
        app.include_router(module.router)

    class Shared:
        pass

    shared = Shared()
    shared.parts, shared.gate = parts, Gate(parts.keys)
    app.state.services = shared
    app.dependency_overrides[services] = lambda: shared
    return TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50000))


def fill(ledgers, parts, domains=2, documents=3):
    """Documents and summaries straight into the tables."""
    with ledgers.engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO document (tenant, key, kind, domain, version, title, covers, when_to_retrieve)"
                " SELECT 'default', format('d%s/%s', i, j), 'article', format('domain-%s', i), 1,"
                " format('Document %s of domain %s', j, i), ARRAY['a case', 'another case'], 'for the executor'"
                " FROM generate_series(1, :domains) i, generate_series(1, :documents) j"
            ),
            {"domains": domains, "documents": documents},
        )
    parts.llm.tick()
    with ledgers.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE knowledge_domain SET description = 'what it deals with', when_to_retrieve = 'questions'")
        )


def test_yaml_json_and_not_modified(client, ledgers, parts):
    fill(ledgers, parts)
    first = client.get("/v1/knowledge-map")
    assert first.status_code == 200 and first.headers["content-type"] == "application/yaml; charset=utf-8"
    read = yaml.safe_load(first.text)["available_knowledge_domains"]
    assert [d["domain_id"] for d in read] == ["domain-1", "domain-2"]
    assert len(read[0]["documents"]) == 3
    as_json = client.get("/v1/knowledge-map", headers={"Accept": "application/json"})
    assert as_json.json()["available_knowledge_domains"][0]["documents"] == read[0]["documents"]
    assert as_json.headers["etag"] != first.headers["etag"]
    assert client.get("/v1/knowledge-map?format=json").headers["etag"] == as_json.headers["etag"]
    again = client.get("/v1/knowledge-map", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/v1/knowledge-map?format=xml").status_code == 422
    assert "executor" not in first.text + as_json.text, "a document's own when_to_retrieve is not for the planner"


def test_an_empty_map_is_a_map(client):
    assert client.get("/v1/knowledge-map").text == "available_knowledge_domains: []\n"


def test_a_delete_leaves_the_map_with_the_next_tick(client, ledgers, parts):
    fill(ledgers, parts)
    before = client.get("/v1/knowledge-map")
    ledgers.documents.delete("default", "d1/2")
    parts.llm.tick()
    after = client.get("/v1/knowledge-map")
    assert after.headers["etag"] != before.headers["etag"]
    assert "Document 2 of domain 1" in before.text and "Document 2 of domain 1" not in after.text


def test_the_planner_prompt_in_both_languages_with_and_without_the_map(client, ledgers, parts):
    fill(ledgers, parts)
    english, chinese = client.get("/v1/prompts/planner"), client.get("/v1/prompts/planner?lang=zh")
    assert "{knowledge_map}" in english.text and "知识地图" in chinese.text
    filled = client.get("/v1/prompts/planner?fill=true")
    assert "Document 1 of domain 1" in filled.text and "{knowledge_map}" not in filled.text
    assert client.get("/v1/prompts/planner", headers={"If-None-Match": english.headers["etag"]}).status_code == 304
    missing = client.get("/v1/prompts/nothing")
    assert missing.status_code == 404 and "planner" in missing.json()["detail"]


def test_domains_are_listed_and_refreshed(client, ledgers, parts):
    fill(ledgers, parts)
    listed = client.get("/v1/domains").json()["domains"]
    assert [(d["domain_id"], d["document_count"]) for d in listed] == [("domain-1", 3), ("domain-2", 3)]
    assert client.post("/v1/domains:refresh?domain=domain-2").json() == {"domains": ["domain-2"]}
    assert client.post("/v1/domains:refresh?domain=nope").status_code == 404
    assert client.post("/v1/domains:refresh").json() == {"domains": ["domain-1", "domain-2"]}


def test_fifty_domains_of_two_hundred_documents_come_from_the_cache_within_the_budget(
    client, ledgers, parts, monkeypatch
):
    fill(ledgers, parts, 50, 200)
    text = client.get("/v1/knowledge-map").text
    assert 7000 < estimate_tokens(text) <= parts.settings.map_tokens
    read = yaml.safe_load(text)["available_knowledge_domains"]
    assert len(read) == 50 and all(len(d["documents"]) + d["documents_not_listed"] == 200 for d in read)
    monkeypatch.setattr(parts.llm.map_ledger, "map_domains", lambda *_: pytest.fail("the cache was not used"))
    assert client.get("/v1/knowledge-map").text == text


def test_a_kept_map_is_asked_about_again_after_a_fifth_of_a_second(ledgers, parts):
    fill(ledgers, parts)
    first = parts.llm.maps.of("default")
    parts.llm.maps.recheck = 60.0
    ledgers.rows("UPDATE change_counter SET value = value + 1")
    ledgers.rows("UPDATE document SET title = 'renamed'")
    assert parts.llm.maps.of("default") is first
    parts.llm.maps.recheck = 0.2
    import time

    time.sleep(0.25)
    assert "renamed" in parts.llm.maps.of("default").yaml


def test_the_command_line(client, ledgers, parts, monkeypatch):
    import json

    from ops import cli_map
    from ops.cli import make_app
    from ops.cli_client import Api

    fill(ledgers, parts)

    class Connected:
        def __enter__(self):
            return Api(client)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(cli_map, "connected", lambda _settings: Connected())
    app, runner = make_app(), CliRunner()
    if "map" not in {c.name for c in app.registered_commands}:
        cli_map.register(app)
    assert yaml.safe_load(runner.invoke(app, ["map"]).stdout)["available_knowledge_domains"]
    assert json.loads(runner.invoke(app, ["map", "--json"]).stdout)["left_out"]["documents"] == 0
    assert "domain-1" in runner.invoke(app, ["domains", "list"]).stdout
    assert json.loads(runner.invoke(app, ["domains", "refresh", "domain-1", "--json"]).stdout) == {
        "domains": ["domain-1"]
    }
    assert "2 domains" in runner.invoke(app, ["domains", "refresh"]).stdout


def test_only_documents_whose_turn_can_come_are_read():
    from pipeline.adapters.ledger.maps import _turns

    assert _turns([200] * 50, 666) == 14
    assert _turns([1, 1, 1000], 100) == 98
    assert _turns([3, 5], 100) == 5
    assert _turns([], 100) == 0
