"""Prepare and drain: documents come, change and fail."""

from __future__ import annotations

import pytest

from pipeline.documents import Lane, State
from pipeline.errors import InfrastructureDown
from pipeline.ports import Scope
from pipeline.sweep import SweepLimits, heal, sweep
from tests.integration.stages_bench import fill_all, paragraphs


def test_documents_become_searchable_and_exactly_their_vectors_are_stored(bench):
    for i in range(5):
        bench.ledgers.put(f"d{i}", f"# Title\n\n{paragraphs(6, i)}")
    bench.run()
    assert {bench.state(f"d{i}") for i in range(5)} == {State.SEARCHABLE}
    assert bench.keys() == bench.wanted()
    assert len(bench.keys()) > 10


def test_a_new_version_replaces_the_old_one_and_its_vectors_are_thrown_away(bench):
    bench.ledgers.put("a", paragraphs(4))
    bench.run()
    bench.ledgers.put("a", "something else entirely")
    bench.run()
    assert len(bench.keys()) > len(bench.wanted()), "the version before serves on for a moment"
    bench.ledgers.rows("UPDATE vector_trash SET due = clock_timestamp()")
    limits = SweepLimits()
    sweep(bench.ledgers.sweeping, bench.ledgers.generations, bench.ledgers.passages, bench.store, limits)
    assert bench.keys() == bench.wanted()


def test_appending_encodes_only_what_is_new(bench):
    bench.ledgers.put("a", paragraphs(12), title="T")
    bench.run()
    before = bench.encoder.encoded
    bench.ledgers.put("a", paragraphs(13), title="T")
    bench.run()
    assert bench.state("a") is State.SEARCHABLE
    assert bench.encoder.encoded - before <= 2
    assert bench.ledgers.rows("SELECT sum(copied) AS n FROM embed_log")[0]["n"] >= 4


def test_unchanged_uploads_make_no_model_call(bench):
    bench.ledgers.put("a", paragraphs(3))
    bench.run()
    before = bench.encoder.encoded
    for _ in range(3):
        assert not bench.ledgers.put("a", paragraphs(3)).changed
    bench.run()
    assert bench.encoder.encoded == before


def test_a_document_that_moves_to_another_domain_is_found_there_without_a_model_call(bench):
    bench.ledgers.put("a", paragraphs(3), domain="old")
    bench.run()
    before, keys = bench.encoder.encoded, bench.keys()
    bench.ledgers.put("a", paragraphs(3), domain="new")
    assert bench.state("a") is State.SEARCHABLE
    bench.run()
    found = {
        d: bench.store.search(bench.generation.spec, None, "pump", Scope(tenant="default", kind="article", domain=d), 5)
        for d in ("old", "new")
    }
    assert not found["old"].lexical and found["new"].lexical
    assert (bench.encoder.encoded, bench.keys()) == (before, keys)


@pytest.mark.parametrize("word", ["POISON", "MEMORY", "NANVECTOR", "SHORT"])
def test_a_bad_item_fails_alone_and_is_parked_with_its_reason(bench, word):
    for i in range(6):
        bench.ledgers.put(f"d{i}", f"healthy text number {i}", lane=Lane.BACKFILL)
    bench.ledgers.put("bad", f"this is {word} indeed", lane=Lane.BACKFILL)
    bench.run()
    for _ in range(4):
        bench.drain()
    assert bench.state("bad") is State.PARKED
    assert {bench.state(f"d{i}") for i in range(6)} == {State.SEARCHABLE}
    error = bench.ledgers.documents.view("default", "bad").error
    expected = {
        "POISON": "ValueError: cannot digest this (stages_bench.py:",
        "MEMORY": "MemoryError",
        "NANVECTOR": "NaN",
        "SHORT": "returned",
    }
    assert expected[word] in error
    assert bench.ledgers.rows("SELECT errors, lapses FROM passage") == [{"errors": 3, "lapses": 0}]
    assert bench.keys() == bench.wanted()


def test_out_of_memory_halves_the_batch_and_parks_nobody(bench):
    bench.encoder.most = 2
    for i in range(12):
        bench.ledgers.put(f"d{i}", f"text {i}", lane=Lane.BACKFILL)
    bench.run()
    assert {bench.state(f"d{i}") for i in range(12)} == {State.SEARCHABLE}
    assert max(bench.encoder.sizes) == 2


def test_a_broken_encoder_is_infrastructure_and_counts_against_nobody(bench):
    bench.ledgers.put("a", "text")
    bench.prepare()
    bench.encoder.broken = True
    with pytest.raises(InfrastructureDown, match="fails on everything"):
        bench.drain()
    assert bench.breaker.open
    assert bench.drain() == 0, "an open breaker leaves the work alone"
    assert bench.ledgers.rows("SELECT state, errors, lapses FROM passage") == [
        {"state": "pending", "errors": 0, "lapses": 0}
    ]
    assert bench.ledgers.rows("SELECT count(*) AS n FROM claim") == [{"n": 0}]
    bench.encoder.broken = False
    bench.breaker.succeeded()
    bench.run()
    assert bench.state("a") is State.SEARCHABLE


def test_a_store_that_is_down_counts_against_nobody(bench, monkeypatch):
    bench.ledgers.put("a", "text")
    bench.prepare()

    def down(*_a, **_k):
        raise InfrastructureDown("Milvus does not answer", part="milvus")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "upsert", down)
        with pytest.raises(InfrastructureDown):
            bench.drain()
    assert bench.ledgers.rows("SELECT state, errors FROM passage") == [{"state": "pending", "errors": 0}]
    bench.breaker.succeeded()
    bench.run()
    assert bench.state("a") is State.SEARCHABLE


def test_a_wiped_collection_is_noticed_and_everything_is_embedded_again(bench):
    for i in range(4):
        bench.ledgers.put(f"d{i}", f"text {i}")
    bench.run()
    bench.store.drop(bench.generation.collection)
    assert heal(bench.ledgers.generations, bench.store) == [bench.generation.id]
    assert bench.ledgers.generations.serving().emptied_at is not None
    assert heal(bench.ledgers.generations, bench.store) == []
    fill_all(bench, page=2)
    sweep(bench.ledgers.sweeping, bench.ledgers.generations, bench.ledgers.passages, bench.store, SweepLimits())
    assert bench.ledgers.generations.serving().emptied_at is None
    assert bench.keys() == bench.wanted()
    assert len(bench.keys()) == 4
