"""A model change under questions: nothing fails, nothing is mixed, everything is embedded once, no LLM is asked."""

from __future__ import annotations

import random

import pytest

from ops.services import MilvusLite
from pipeline.swapping import roll_back
from tests.faults.harness import ROUNDS

DOCUMENTS = 60

# Three models in turn, or a fill with faults in it: minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)

BUMPS = (
    ({"passage_tokens": 48}, "words-a"),
    # The same dimension, but another space: only the fingerprint can tell.
    ({"embed_model": "words-b", "embed_dimension": 1024}, "words-b"),
    ({"embed_model": "words-c", "embed_dimension": 768}, "words-c"),
)


def test_every_bump_reembeds_everything_once_while_lookups_go_on(make_reindexing, llm_server):
    # No worker is lost here, so none may be taken for lost on a slow machine: everything is encoded once.
    fleet = make_reindexing(llm_base_url=llm_server.url, llm_model="scripted", llm_domain_calls=1000, claim_seconds=120)
    fleet.begin(DOCUMENTS)
    fleet.wait("the LLM has nothing left to do", lambda: not fleet.sql("SELECT 1 FROM describe_job LIMIT 1"))
    fleet.wait("summaries", lambda: not fleet.sql("SELECT 1 FROM knowledge_domain WHERE dirty_since IS NOT NULL"))
    llm_server.forget()
    with fleet.asking():
        for number, (settings, model) in enumerate(BUMPS, start=2):
            bump(fleet, number, settings, model)
    assert fleet.failed() == []
    assert fleet.mixed() == []
    answered = fleet.answered_by()
    assert set(answered) == {1, 2, 3, 4} and min(answered.values()) > 10, answered
    assert llm_server.calls() == []
    assert [g["status"] for g in fleet.generations()] == ["draining", "draining", "draining", "serving"]

    # Uploads since the swap go to all of them, so that the way back loses nothing.
    fleet.upload(900)
    fleet.settle()
    fleet.wait("the one before has it, too", lambda: not fleet.parts.swaps.behind(4, 3))
    assert roll_back(fleet.parts.swaps, fleet.parts.swaps).id == 3
    assert fleet.state("pump900") == "searchable"


def bump(fleet, number, settings, model) -> None:
    """New settings for all workers; everything is encoded once more, and once only."""
    first = fleet.encodings(model)
    fleet.roll_out(**settings)
    fleet.wait(f"generation {number} serves", lambda: fleet.serving() == number, 240)
    before = len(fleet.asked)
    fleet.wait("it is asked", lambda: len(fleet.asked) > before + 60)
    again = fleet.encodings(model) - first
    total = fleet.one("SELECT sum(live_total) AS n FROM embedding WHERE generation = :g", g=number)
    assert (sum(again.values()), max(again.values())) == (total, 1)
    new = fleet.generations()[-1]
    assert (new["id"], new["held"], new["compared"]["missing"]) == (number, None, 0)
    assert new["recall_check"]["self_retrieval"] >= 0.7


@pytest.mark.parametrize(
    ("documents", "changes"), [(DOCUMENTS, 21), pytest.param(200, 70, marks=pytest.mark.faults_long)]
)
def test_faults_edits_and_deletes_in_mid_fill_end_in_what_a_fresh_build_makes(make_reindexing, documents, changes):
    fleet = make_reindexing()
    fleet.begin(documents)
    kills = 0
    with fleet.asking():
        fleet.roll_out(embed_model="words-b-60", embed_dimension=768)
        choice = random.Random(7)
        changed = choice.sample(range(documents // 2), changes)
        fleet.wait("the fill is under way", lambda: done(fleet) > 5)
        fleet.kill("gpu")
        kills += 1
        change(fleet, changed[:14])
        fleet.start("gpu")
        fleet.wait("it goes on", lambda: done(fleet) > documents // 3)
        restart_milvus(fleet)
        change(fleet, changed[14:])
        fleet.wait("the new generation serves", lambda: fleet.serving() == 2, 300)
        before = len(fleet.asked)
        fleet.wait("it is asked", lambda: len(fleet.asked) > before + 60)
        fleet.settle()
    assert fleet.failed(while_degraded=True) == []
    assert fleet.mixed() == []
    assert set(fleet.answered_by()) == {1, 2}
    fleet.empty_trash()
    fleet.settle()
    found, fresh = fleet.contents(), fleet.fresh_build()
    assert found.keys() == fresh.keys()
    assert found == fresh
    encoded = fleet.encodings("words-b-60")
    # A killed worker's batches are made again; what was edited before its turn came was never made at all.
    in_flight = (kills + 1) * 2 * 48
    assert sum(encoded.values()) - len(encoded) <= in_flight


def done(fleet) -> int:
    return fleet.one("SELECT count(*) AS n FROM embedding WHERE generation = 2 AND live_version IS NOT NULL")


def change(fleet, numbers) -> None:
    """Five edits for every two deletes."""
    for n, number in enumerate(numbers):
        if n % 7 in (2, 5):
            fleet.delete(f"pump{number}")
            del fleet.newest["default", f"pump{number}"]
        else:
            fleet.upload(number, edition=1)


def restart_milvus(fleet) -> None:
    child = fleet.services.children["milvus"]
    port = int(fleet.services.url("milvus_uri").rsplit(":", 1)[1])
    child.kill()
    child.start()
    fleet.ready("milvus", MilvusLite(directory=fleet.services.data_dir, port=port).ready)


@pytest.mark.faults_long
def test_old_and_new_code_restarting_in_turn_build_one_generation(make_reindexing):
    fleet = make_reindexing()
    fleet.begin(6)
    for _ in range(ROUNDS):
        fleet.roll_out(kill=True, passage_tokens=48)
        fleet.wait("a worker has started", lambda: len(fleet.generations()) == 2)
        fleet.roll_out(kill=True, passage_tokens=64)
    fleet.wait("the new generation serves", lambda: fleet.serving() == 2, 120)
    assert [g["status"] for g in fleet.generations()] == ["draining", "serving"]
