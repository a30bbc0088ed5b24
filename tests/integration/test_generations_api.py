"""Generations, sweeps and events over HTTP, with a fake encoder and store behind a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import HashEmbedder
from tests.integration.api_server import Server, problem
from tests.integration.stages_bench import Bench, fill_all, paragraphs, swap

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/ci/deploy", "type": "wellhead.reindex.requested"}

# Titles that find their own document, so that an encoder that finds none of them is much worse.
STATIONS = ("Harbour", "Meadow", "Quarry", "Castle", "Orchard", "Lighthouse")


class Reindexing:
    """A server whose settings name the same encoder and rule as the workers of ``bench``."""

    def __init__(self, ledgers, settings: dict[str, Any]) -> None:
        self.bench = Bench(ledgers)
        self.server = Server(**settings, passage_tokens=64)
        parts = self.server.parts
        parts.embedder, parts.vectors = self.bench.encoder, self.bench.store
        self.client = self.server.client

    def set(self, **settings: Any) -> None:
        """The server starts again with other settings."""
        services = self.server.app.state.services
        changed = services.settings.model_copy(update=settings)
        object.__setattr__(services, "settings", changed)
        services.parts.settings = changed

    def generations(self) -> dict[int, dict[str, Any]]:
        return {g["id"]: g for g in self.client.get("/v1/generations").json()["generations"]}


@pytest.fixture
def made(ledgers, settings) -> Iterator[Reindexing]:
    reindexing = Reindexing(ledgers, settings)
    for i in range(len(STATIONS)):
        ledgers.put(f"d{i}", f"{STATIONS[i]}: {paragraphs(3, i)}", title=f"{STATIONS[i]} station")
    reindexing.bench.run()
    with reindexing.client:
        yield reindexing


def test_what_is_fresh_stale_and_how_long_it_takes_is_said_without_doing_anything(made):
    fresh = made.client.post("/v1/sweep", json={"dry_run": True}).json()
    assert (fresh["state"], fresh["documents"], fresh["documents_total"], fresh["seconds"]) == ("fresh", 0, 6, 0.0)
    asked = made.client.post("/v1/sweep", json={"dry_run": True, "passage_tokens": 48}).json()
    assert (asked["state"], asked["documents"], asked["generation"]) == ("stale", 6, None)
    assert asked["tokens"] == made.generations()[1]["tokens_done"] > 100
    assert asked["seconds"] == pytest.approx(asked["tokens"] / asked["tokens_per_s"], rel=0.02, abs=0.1)
    assert list(made.generations()) == [1]
    problem(made.client.post("/v1/sweep", json={"passage_tokens": 48}), 422)


def test_a_sweep_builds_what_the_settings_say_and_says_so_while_it_builds(made):
    made.set(passage_tokens=48)
    answer = made.client.post("/v1/sweep")
    assert (answer.status_code, answer.json()["state"], answer.json()["generation"]) == (202, "started", 2)
    again = made.client.post("/v1/sweep")
    assert (again.status_code, again.json()["state"]) == (200, "building")
    row = made.generations()[2]
    assert (row["status"], row["coverage"], row["documents_done"], row["documents_eligible"]) == ("building", 0.0, 0, 6)
    assert row["tokens_total"] == made.generations()[1]["tokens_total"], "nothing is cut yet: as much as serves now"
    assert row["eta_s"] is None and row["held"] is None


def test_the_wire_form_of_a_generation(made):
    assert set(made.generations()[1]) == {
        "id", "fingerprint", "status", "coverage", "documents_done", "documents_eligible", "tokens_done",
        "tokens_total", "parked", "tokens_per_s", "eta_s", "recall_check", "held",
    }  # fmt: skip


def test_swap_rollback_and_drop_by_hand(made):
    new = made.bench.begin("r1:48")
    refused = problem(made.client.post(f"/v1/generations/{new.id}:swap"), 409)
    assert refused["behind"] == 6
    fill_all(made.bench)
    assert made.client.post(f"/v1/generations/{new.id}:swap", json={}).json()["status"] == "serving"
    made.bench.ledgers.put("later", "uploaded after the swap")
    made.bench.run()
    made.bench.ledgers.rows(
        "DELETE FROM embedding WHERE generation = 1 AND document = (SELECT id FROM document WHERE key = 'later')"
    )
    assert problem(made.client.post("/v1/generations:rollback"), 409)["behind"] == 1
    fill_all(made.bench)
    assert made.client.post("/v1/generations:rollback").json()["id"] == 1
    assert made.client.get("/v1/documents/later").json()["state"] == "searchable"
    problem(made.client.post("/v1/generations/1:drop"), 409)
    assert made.client.post(f"/v1/generations/{new.id}:drop").json()["status"] == "retiring"
    problem(made.client.post("/v1/generations:rollback"), 409)
    problem(made.client.post("/v1/generations/77:drop"), 404)
    problem(made.client.post("/v1/generations/77:swap"), 404)


def test_a_generation_held_by_its_recall_check_says_why(made):
    class Blind(HashEmbedder):
        def encode(self, batch):
            found = super().encode(batch)
            found.dense[:] = 0
            found.dense[:, 0] = 1
            return found

    new = made.bench.begin("r1:64", Blind(weights="blind"))
    fill_all(made.bench)
    assert swap(made.bench) is None
    row = made.generations()[new.id]
    assert "recall check" in row["held"]
    assert row["recall_check"]["self_retrieval"] < 0.5 < row["recall_check"]["serving_self_retrieval"]
    assert made.client.post(f"/v1/generations/{new.id}:swap").json()["status"] == "serving"


@pytest.mark.parametrize("binary", [False, True])
def test_a_reindex_event_builds_a_dropped_fingerprint_again(made, binary):
    new = made.bench.begin("r1:48")
    made.client.post(f"/v1/generations/{new.id}:drop")
    made.set(passage_tokens=48)
    sent = (
        {"headers": {f"ce-{k}": v for k, v in EVENT.items()}}
        if binary
        else {"json": EVENT, "headers": {"Content-Type": "application/cloudevents+json"}}
    )
    problem(made.client.post("/v1/events", **sent), 409)
    made.bench.store.drop(new.collection)
    made.bench.ledgers.drops.dropped(new.id)
    assert made.server.parts.ensure_generation() is None, "by itself it never builds again"
    answer = made.client.post("/v1/events", **sent)
    assert answer.status_code == 202
    assert answer.json() == {
        "id": "e-1", "type": EVENT["type"], "state": "started", "generation": 3, "fingerprint": new.fingerprint,
    }  # fmt: skip
    assert made.client.post("/v1/events", **sent).json()["state"] == "building", "the same event twice does no more"


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({**EVENT, "type": "wellhead.unknown"}, "type"),
        ({**EVENT, "specversion": "0.3"}, "specversion"),
        ({k: v for k, v in EVENT.items() if k != "source"}, "source"),
        ({**EVENT, "id": 7}, "id"),
        ({"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": "a.md"}}}]}, "Records"),
        ({"EventName": "s3:ObjectCreated:Put", "Key": "bucket/a.md"}, "EventName"),
        ({"hello": "world"}, "specversion"),
    ],
)
def test_other_events_are_refused_and_the_answer_says_which_are_accepted(made, event, field):
    refused = problem(made.client.post("/v1/events", json=event), 422)
    assert refused["field"] == field
    if field != "specversion":
        assert "wellhead.reindex.requested" in refused["detail"]


def test_an_unknown_type_in_binary_mode_names_the_header(made):
    headers = {f"ce-{k}": v for k, v in {**EVENT, "type": "com.example.other"}.items()}
    assert problem(made.client.post("/v1/events", headers=headers), 422)["field"] == "ce-type"
    batch = made.client.post("/v1/events", content="[]", headers={"Content-Type": "application/cloudevents-batch+json"})
    assert problem(batch, 422)["field"] == "Content-Type"


def test_the_command_line_lists_sweeps_swaps_and_rolls_back(made, monkeypatch, capsys):
    import json

    from ops import cli, cli_client

    def command(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["wellhead", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    monkeypatch.setenv("WELLHEAD_API_URL", "http://127.0.0.1")
    monkeypatch.setattr(cli_client.httpx, "Client", lambda **_: _Borrowed(made.client))
    assert command("sweep", "--dry-run").startswith("Nothing is stale: all 6 documents")
    assert json.loads(command("sweep", "--dry-run", "--passage-tokens", "48", "--json"))["documents"] == 6
    made.set(passage_tokens=48)
    assert "Generation 2 is being made now" in command("sweep")
    fill_all(made.bench)
    assert "Generation 2" in command("generations", "swap", "2")
    assert [g["status"] for g in json.loads(command("generations", "list", "--json"))["generations"]] == [
        "draining",
        "serving",
    ]
    assert "serves again" in command("generations", "rollback")
    assert "goes, once" in command("generations", "drop", "2")
    monkeypatch.setenv("COLUMNS", "240")
    listed = command("generations", "list")
    assert "retiring" in listed and "r1:48" in listed and "6 of 6 (100.0%)" in listed


class _Borrowed:
    """The test's client as the one that a command opens and closes."""

    base_url = "http://127.0.0.1"

    def __init__(self, client) -> None:
        self._client = client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def request(self, *given, **options):
        return self._client.request(*given, **options)
