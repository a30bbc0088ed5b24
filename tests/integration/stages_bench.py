"""The stages in one process on a real ledger, with a fake encoder and a fake vector store that can be made to fail."""

from __future__ import annotations

import numpy as np

from pipeline.breaker import Breaker
from pipeline.embed import Drain, DrainLimits
from pipeline.errors import OutOfMemory
from pipeline.fingerprint import passage_key
from pipeline.generation import SCHEMA_VERSION
from pipeline.generations import fill, in_order
from pipeline.ports import Embeddings
from pipeline.prepare import PrepareLimits, prepare
from pipeline.reconcile import reconcile
from pipeline.swapping import SwapLimits, run_check, try_swap
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


def paragraphs(n, start=0):
    return "\n\n".join(
        f"Paragraph {i} says something about pump number {i} and its valve." * 2 for i in range(start, start + n)
    )


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
