"""Whoever waits goes first, and the backfill still moves."""

from __future__ import annotations

import threading
import time

import pytest

from pipeline.documents import Lane, State
from tests.integration.stages_bench import paragraphs


def test_live_work_goes_before_the_next_backfill_batch(bench):
    for i in range(20):
        bench.ledgers.put(f"b{i}", paragraphs(2, i), lane=Lane.BACKFILL)
    bench.prepare()
    order = []
    original = bench.encoder.encode

    def encode(batch):
        texts = [bench.encoder.texts[tuple(i)] for i in batch if tuple(i) in bench.encoder.texts]
        order.append("live" if any("URGENT" in t for t in texts) else "backfill")
        if len(order) == 2:
            bench.ledgers.put("now", "URGENT text")
            bench.prepare()
        return original(batch)

    bench.encoder.encode = encode
    bench.drain()
    assert order.index("live") == 2, order[:5]


@pytest.mark.parametrize("claimed_ahead", [False, True])
def test_live_work_does_not_wait_for_a_backfill_write_that_stalls(bench, claimed_ahead):
    for i in range(40):
        bench.ledgers.put(f"b{i}", paragraphs(2, i), lane=Lane.BACKFILL)
    bench.prepare()
    upsert, claim, seen = bench.store.upsert, bench.ledgers.passages.claim_passages, []
    prepared, third_claimed, ahead = threading.Event(), threading.Event(), []

    def stall(spec, rows):
        if threading.current_thread() is not threading.main_thread() and not seen:
            seen.append(None)
            assert claimed_ahead or third_claimed.wait(20)
            bench.ledgers.put("now", "URGENT text")
            bench.prepare()
            prepared.set()
            deadline = time.monotonic() + 20
            while bench.state("now") is not State.SEARCHABLE and time.monotonic() < deadline:
                time.sleep(0.05)
            seen[0] = bench.state("now")
        upsert(spec, rows)

    def claim_in_turn(*args):
        """The group after the one that is encoded meanwhile is claimed before the upload, or after it."""
        if threading.current_thread() is threading.main_thread():
            assert len(ahead) < 2 or third_claimed.wait(20)
            return claim(*args)
        assert len(ahead) != 2 or not claimed_ahead or prepared.wait(20)
        group = claim(*args)
        ahead.extend([group] if group else [])
        if len(ahead) == 3:
            third_claimed.set()
        return group

    bench.store.upsert = stall
    bench.ledgers.passages.claim_passages = claim_in_turn
    bench.drain()
    assert seen == [State.SEARCHABLE]


def test_a_task_that_holds_the_encoder_serves_uploads_and_leaves_the_backfill(bench):
    bench.ledgers.put("b", "backfill", lane=Lane.BACKFILL)
    bench.ledgers.put("now", "URGENT text")
    bench.prepare()
    assert bench.drainer().serve_live(bench.ledgers.generations.active()) == 1
    assert (bench.state("now"), bench.state("b")) == (State.SEARCHABLE, State.PENDING)
    assert bench.drainer().serve_live(bench.ledgers.generations.active()) == 0


def test_the_backfill_lane_still_gets_one_claim_in_eight(bench):
    for i in range(60):
        bench.ledgers.put(f"l{i}", f"live {i}")
    bench.ledgers.put("b", "backfill", lane=Lane.BACKFILL)
    bench.prepare()
    claims = []
    original = bench.ledgers.passages.claim_passages

    def claim(generation, lane, *a):
        group = original(generation, lane, *a)
        if group:
            claims.append(lane)
        return group

    bench.ledgers.passages.claim_passages = claim
    bench.drain()
    assert claims.index(Lane.BACKFILL) == 7
    assert bench.state("b") is State.SEARCHABLE


def test_a_burst_at_the_end_of_a_backfill_is_embedded_by_the_same_drain(bench):
    bench.ledgers.put("b", "backfill", lane=Lane.BACKFILL)
    bench.prepare()
    original, came = bench.encoder.encode, []

    def encode(batch):
        if not came:
            came.extend(f"l{i}" for i in range(60))
            for key in came:
                bench.ledgers.put(key, f"live {key}")
            bench.prepare()
        return original(batch)

    bench.encoder.encode = encode
    bench.drain()
    assert {bench.state(key) for key in ["b", *came]} == {State.SEARCHABLE}
