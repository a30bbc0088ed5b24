"""A bump fills a new generation, which takes over when it is counted as complete."""

from __future__ import annotations

import pytest

from pipeline.documents import State
from pipeline.generation import SCHEMA_VERSION
from pipeline.generations import retire_old
from tests.integration.stages_bench import Encoder, fill_all, paragraphs, swap


def test_a_rule_bump_embeds_the_corpus_again_and_swaps_when_all_is_there(bench):
    for i in range(7):
        bench.ledgers.put(f"d{i}", paragraphs(3, i), title=f"Manual of pump {i}")
    bench.run()
    new = bench.begin("r1:48")
    assert swap(bench) is None
    bench.ledgers.put("d0", "changed in mid-fill", title="Manual of pump 0")
    bench.ledgers.documents.delete("default", "d1")
    fill_all(bench)
    swapped = swap(bench)
    assert swapped.id == new.id, bench.ledgers.rows("SELECT held, recall_check FROM generation")
    assert bench.keys(new) == bench.wanted(new)
    assert bench.ledgers.documents.view("default", "d0").fingerprint == new.fingerprint
    # The old one is written to until its soak ends: swapping back loses nothing.
    bench.ledgers.put("later", "uploaded after the swap")
    bench.run()
    assert bench.ledgers.swaps.swap(bench.generation.id).id == bench.generation.id
    assert bench.state("later") is State.SEARCHABLE


def test_a_swap_never_loses_a_document_that_is_served(bench):
    bench.ledgers.put("a", "one")
    bench.run()
    new = bench.begin("r1:48")
    from pipeline.errors import Conflict

    with pytest.raises(Conflict, match="1 documents"):
        bench.ledgers.swaps.swap(new.id)
    fill_all(bench)
    bench.ledgers.rows("UPDATE embedding SET live_version = NULL, parked = 1 WHERE generation = :g", g=new.id)
    assert swap(bench) is None
    held = bench.ledgers.rows("SELECT held FROM generation WHERE id = :g", g=new.id)[0]["held"]
    assert "parked" in held
    assert bench.ledgers.swaps.swap(new.id, accept_missing=True).id == new.id


def test_a_generation_that_finds_nothing_is_held_by_its_recall_check(bench):
    for i in range(6):
        bench.ledgers.put(f"d{i}", paragraphs(2, i), title=f"Manual of pump {i}")
    bench.run()

    class Blind(Encoder):
        def encode(self, batch):
            made = super().encode(batch)
            made.dense[:] = 0
            made.dense[:, 0] = 1
            return made

    new = bench.begin("r1:64", Blind(weights="blind"))
    fill_all(bench)
    assert swap(bench) is None
    row = bench.ledgers.rows("SELECT held, recall_check FROM generation WHERE id = :g", g=new.id)[0]
    assert "recall check" in row["held"]
    assert row["recall_check"]["self_retrieval"] < 0.5 <= row["recall_check"]["serving_self_retrieval"]


def test_draining_generations_are_retired_and_dropped_with_all_they_hold(bench):
    bench.ledgers.put("a", "one")
    bench.run()
    old = bench.generation
    new = bench.begin("r1:48")
    fill_all(bench)
    assert swap(bench).id == new.id
    retire_old(bench.ledgers.generations, bench.ledgers.drops, bench.store, 0, 0)
    assert old.collection not in bench.store.collections()
    assert bench.ledgers.rows("SELECT status FROM generation ORDER BY id") == [
        {"status": "dropped"},
        {"status": "serving"},
    ]
    assert bench.ledgers.rows("SELECT to_regclass('embedding_g1') AS t") == [{"t": None}]
    assert bench.ledgers.generations.ensure(old.space, old.rule, SCHEMA_VERSION, "t") is None, "no ping-pong"


def test_a_second_bump_supersedes_the_first(bench):
    bench.ledgers.put("a", "one")
    bench.run()
    bench.begin("r1:48")
    third = bench.begin("r1:32")
    statuses = {r["id"]: r["status"] for r in bench.ledgers.rows("SELECT id, status FROM generation")}
    assert statuses == {1: "serving", 2: "retiring", 3: "building"}
    fill_all(bench)
    assert swap(bench).id == third.id
