"""Drain and heal on a real ledger while the store loses rows, refuses rows, or is dropped under the drain."""

from __future__ import annotations

import threading
import time

import pytest

from pipeline.documents import Lane, State
from pipeline.embed import Drain
from pipeline.errors import BadVector, InfrastructureDown
from pipeline.generations import in_order
from pipeline.sweep import SweepLimits, heal, sweep
from tests.integration.stages_bench import LIMITS, paragraphs


def refuse(bench, monkeypatch, error, *, word=None):
    """The store refuses rows whose text holds ``word`` (all when None) with ``error``."""
    original = bench.store.upsert

    def upsert(spec, rows):
        if any(word is None or word in r.text for r in rows):
            raise error
        original(spec, rows)

    monkeypatch.setattr(bench.store, "upsert", upsert)


def passages(bench):
    return bench.ledgers.rows("SELECT state, errors, lapses, token FROM passage ORDER BY id")


def test_a_version_whose_written_keys_cannot_be_read_back_is_embedded_again(bench, monkeypatch):
    bench.ledgers.put("a", paragraphs(6))
    bench.prepare()
    original, lost = bench.store.upsert, []

    def forgetful(spec, rows):
        original(spec, rows)
        if not lost:
            lost.extend(r.key for r in rows[:1])
            bench.store.delete(spec, lost)

    monkeypatch.setattr(bench.store, "upsert", forgetful)
    states = []
    flip = bench.ledgers.passages.flip
    monkeypatch.setattr(
        bench.ledgers.passages, "flip", lambda c, m, g: states.append((list(m), bench.state("a"))) or flip(c, m, g)
    )
    bench.run()
    assert states[0] == ([0], State.PENDING), "it must not serve before all of it is there"
    assert bench.state("a") is State.SEARCHABLE
    assert bench.keys() == bench.wanted()
    assert bench.ledgers.rows("SELECT value FROM counter WHERE name = 'read_back_missing'") == [{"value": 1}]


@pytest.mark.parametrize("error", [BadVector("no"), RuntimeError("field too long")])
def test_a_row_that_the_store_refuses_is_parked_alone(bench, monkeypatch, error):
    refuse(bench, monkeypatch, error, word="UNSTORABLE")
    for i in range(6):
        bench.ledgers.put(f"d{i}", f"healthy text number {i}", lane=Lane.BACKFILL)
    bench.ledgers.put("bad", "this is UNSTORABLE indeed", lane=Lane.BACKFILL)
    bench.run()
    for _ in range(4):
        bench.drain()
    assert bench.state("bad") is State.PARKED
    assert type(error).__name__ in bench.ledgers.documents.view("default", "bad").error
    assert {bench.state(f"d{i}") for i in range(6)} == {State.SEARCHABLE}
    assert bench.keys() == bench.wanted()
    assert passages(bench) == [{"state": "parked", "errors": 3, "lapses": 0, "token": None}]


def test_a_store_that_refuses_everything_is_infrastructure_and_counts_against_nobody(bench, monkeypatch):
    bench.ledgers.put("a", "text")
    bench.prepare()
    with monkeypatch.context() as patched:
        refuse(bench, patched, RuntimeError("internal error"))
        patched.setattr(bench.store, "probe_metric", lambda: (_ for _ in ()).throw(RuntimeError("internal error")))
        with pytest.raises(InfrastructureDown, match="refuses everything"):
            bench.drain()
    assert passages(bench) == [{"state": "pending", "errors": 0, "lapses": 0, "token": None}]
    bench.breaker.succeeded()
    bench.run()
    assert bench.state("a") is State.SEARCHABLE


@pytest.mark.parametrize("edited", [False, True])
def test_a_collection_dropped_under_a_drain_counts_against_nobody(bench, edited):
    bench.ledgers.put("a", paragraphs(6))
    bench.run()
    bench.ledgers.put("a" if edited else "b", paragraphs(7))
    bench.prepare()
    bench.store.drop(bench.generation.collection)
    bench.drain()
    assert {(p["state"], p["errors"], p["lapses"], p["token"]) for p in passages(bench)} == {("pending", 0, 0, None)}
    assert bench.ledgers.rows("SELECT count(*) AS n FROM claim") == [{"n": 0}]


def test_an_error_that_nobody_expected_gives_the_group_back_at_once(bench, monkeypatch):
    for i in range(4):
        bench.ledgers.put(f"d{i}", f"text {i}")
    bench.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(bench.ledgers.passages, "finish", lambda *a: (_ for _ in ()).throw(ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            bench.drain()
    sweep(bench.ledgers.sweeping, bench.ledgers.generations, bench.ledgers.passages, bench.store, SweepLimits())
    assert {(p["state"], p["lapses"]) for p in passages(bench)} == {("pending", 0)}
    bench.run()
    assert {bench.state(f"d{i}") for i in range(4)} == {State.SEARCHABLE}


def test_what_a_lost_worker_held_is_encoded_with_nothing_else_in_hand(bench):
    for i in range(16):
        bench.ledgers.put(f"d{i}", f"text {i}")
    bench.prepare()
    bench.ledgers.claim(bench.generation, limit=4, seconds=-1)
    bench.ledgers.sweeping.lapse_claims(2)
    held = []
    original = bench.encoder.encode

    def encode(batch):
        time.sleep(0.2)  # whoever claims ahead or still writes has the time to be seen
        held.append(
            bench.ledgers.rows(
                "SELECT count(*) AS claims, bool_or(p.cohort IS NOT NULL) AS suspects FROM claim c"
                " LEFT JOIN LATERAL (SELECT cohort FROM passage WHERE token = c.token LIMIT 1) p ON true"
            )[0]
        )
        return original(batch)

    bench.encoder.encode = encode
    bench.drain()
    with_suspects = [h["claims"] for h in held if h["suspects"]]
    assert with_suspects, "the suspects were encoded"
    assert set(with_suspects) == {1}
    assert {bench.state(f"d{i}") for i in range(16)} == {State.SEARCHABLE}


def test_suspects_do_not_wait_for_the_end_of_a_backfill(bench):
    for i in range(60):
        bench.ledgers.put(f"b{i}", paragraphs(3, i), lane=Lane.BACKFILL)
    bench.ledgers.put("now", "somebody waits for this")
    bench.prepare()
    bench.ledgers.claim(bench.generation, seconds=-1)
    bench.ledgers.sweeping.lapse_claims(2)
    drain = Drain(
        bench.ledgers.passages, bench.ledgers.passages, bench.store, bench.embedder_for, bench.breaker, LIMITS
    )
    rounds = iter(range(6))
    drain.run(in_order(bench.ledgers.generations.active()), lambda: next(rounds, None) is not None)
    assert bench.state("now") is State.SEARCHABLE
    assert bench.ledgers.rows("SELECT count(*) AS n FROM passage WHERE state = 'pending'")[0]["n"] > 0


def test_a_collection_that_somebody_made_again_and_wrote_to_is_noticed_too(bench):
    for i in range(8):
        bench.ledgers.put(f"d{i}", f"text {i}")
    bench.run()
    bench.store.drop(bench.generation.collection)
    bench.store.create(bench.generation.spec)
    bench.ledgers.put("new", "written to the empty collection")
    bench.run()
    assert len(bench.keys()) == 1
    assert heal(bench.ledgers.generations, bench.store) == [bench.generation.id]


def test_a_full_collection_is_left_alone(bench):
    for i in range(8):
        bench.ledgers.put(f"d{i}", f"text {i}")
    bench.run()
    assert heal(bench.ledgers.generations, bench.store) == []
    bench.store.delete(bench.generation.spec, sorted(bench.keys())[:2])
    assert heal(bench.ledgers.generations, bench.store) == [], "reconcile repairs small losses one by one"


def test_a_text_that_takes_longer_than_its_claim_is_cut_once(bench, monkeypatch):
    from pipeline.prepare import PrepareLimits, prepare

    bench.ledgers.put("long", "text")
    beats = threading.Event()
    extend = bench.ledgers.preparing.extend
    monkeypatch.setattr(bench.ledgers.preparing, "extend", lambda *a: (extend(*a), beats.set())[0])

    def tokenizer_for(space):
        assert beats.wait(20), "the claim is extended while the text is being cut"
        bench.ledgers.sweeping.lapse_claims(2)
        return bench.encoder.tokenizer

    limits = PrepareLimits(claim_seconds=2)
    assert prepare(bench.ledgers.preparing, bench.ledgers.generations, tokenizer_for, limits, lambda: True) == 1
    assert bench.ledgers.rows(
        "SELECT count(*) AS n FROM counter WHERE name IN ('lapsed_claims', 'fenced_commits')"
    ) == [{"n": 0}]
