"""Prepare and drain on a real ledger, with a fake encoder and a fake vector store that can be made to fail."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from pipeline.breaker import Breaker
from pipeline.documents import Lane, State
from pipeline.embed import Drain, DrainLimits
from pipeline.errors import InfrastructureDown, OutOfMemory
from pipeline.fingerprint import passage_key
from pipeline.generation import SCHEMA_VERSION
from pipeline.generations import fill, in_order, retire_old
from pipeline.ports import Embeddings, Scope
from pipeline.prepare import PrepareLimits, prepare
from pipeline.reconcile import reconcile
from pipeline.swapping import SwapLimits, run_check, try_swap
from pipeline.sweep import SweepLimits, heal, sweep
from tests.fakes import HashEmbedder
from tests.fakes_vectors import InMemoryVectors

LIMITS = DrainLimits(batch_tokens=64, live_passages=4, backfill_passages=8, retry_base_seconds=0, max_errors=3)


class Encoder(HashEmbedder):
    """Counts forward passes and fails on marked words."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.sizes: list[int] = []
        self.texts: dict[tuple[int, ...], str] = {}
        self.most = 1_000_000
        self.broken = False

    def tokenize(self, texts, role):
        ids = super().tokenize(texts, role)
        self.texts.update({tuple(i): t for i, t in zip(ids, texts, strict=True)})
        return ids

    def encode(self, batch):
        if self.broken:
            raise RuntimeError("CUDA error")
        if len(batch) > self.most:
            raise OutOfMemory("too many")
        texts = [self.texts.get(tuple(i), "") for i in batch]
        if any("POISON" in t for t in texts):
            raise ValueError("cannot digest this")
        if any("MEMORY" in t for t in texts):
            raise MemoryError
        self.sizes.append(len(batch))
        made = super().encode(batch)
        for row, text in enumerate(texts):
            if "NANVECTOR" in text:
                made.dense[row] = np.nan
        if any("SHORT" in t for t in texts):
            return Embeddings(dense=made.dense[:-1])
        return made

    @property
    def encoded(self) -> int:
        return sum(self.sizes)


class Bench:
    """One process: a ledger, an encoder, a store."""

    def __init__(self, ledgers, encoder=None, rule="r1:64"):
        self.ledgers = ledgers
        self.encoder = encoder or Encoder()
        self.store = InMemoryVectors()
        self.encoders = {self.encoder.space.name: self.encoder}
        self.generation = self.begin(rule)
        self.breaker = Breaker()

    def begin(self, rule, encoder=None):
        space = (encoder or self.encoder).space
        if encoder:
            self.encoders[space.name] = encoder
        made = self.ledgers.generations.ensure(space, rule, SCHEMA_VERSION, "t")
        self.store.create(made.spec)
        return made

    def embedder_for(self, space):
        return self.encoders.get(space.name)

    def prepare(self):
        tokenizer_for = lambda s: self.encoders[s.name].tokenizer if s.name in self.encoders else None  # noqa: E731
        return prepare(
            self.ledgers.preparing,
            self.ledgers.generations,
            tokenizer_for,
            PrepareLimits(retry_base_seconds=0),
            lambda: True,
        )

    def drain(self):
        return self.drainer().run(in_order(self.ledgers.generations.active()), lambda: True)

    def drainer(self):
        return Drain(self.ledgers.passages, self.ledgers.passages, self.store, self.embedder_for, self.breaker, LIMITS)

    def run(self):
        self.prepare()
        while self.drain():
            self.prepare()

    def state(self, key):
        return self.ledgers.documents.view("default", key).state

    def keys(self, generation=None):
        return {k for page in self.store.keys((generation or self.generation).collection) for k in page}

    def wanted(self, generation=None):
        g = (generation or self.generation).id
        rows = self.ledgers.rows(
            "SELECT document, live_version AS v, live_total AS n FROM embedding WHERE generation = :g", g=g
        )
        return {passage_key(r["document"], r["v"], i) for r in rows for i in range(r["n"] or 0)}


@pytest.fixture
def bench(ledgers):
    return Bench(ledgers)


def paragraphs(n, start=0):
    return "\n\n".join(
        f"Paragraph {i} says something about pump number {i} and its valve." * 2 for i in range(start, start + n)
    )


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
        "POISON": "ValueError: cannot digest this (test_stages.py:",
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


def fill_all(bench, page=3):
    while True:
        bench.ledgers.rows("UPDATE job SET not_before = clock_timestamp() WHERE starts_with(name, 'fill:')")
        job = bench.ledgers.jobs.take_job("fill:", 60)
        if job is None:
            return
        fill(bench.ledgers.jobs, job, bench.ledgers.generations.active(), page, 1000)
        bench.run()


SWAP = SwapLimits(min_self_retrieval=0.5, settle_seconds=0, patience_seconds=0)


def swap(bench, calibrated=lambda _: True):
    """Ticks, and does what they ask for, until one asks for nothing."""
    ledgers = bench.ledgers
    for _ in range(4):
        tick = try_swap(ledgers.generations, ledgers.swaps, ledgers.swaps, bench.store, SWAP, calibrated)
        if tick.check:
            run_check(ledgers.generations, ledgers.swaps, bench.store, bench.embedder_for, SWAP)
        if tick.compare:
            reconcile(ledgers.jobs, ledgers.reconciling, bench.store, ledgers.generations.active(), 60)
        if not tick.check and not tick.compare:
            return tick.swapped
    return None


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
