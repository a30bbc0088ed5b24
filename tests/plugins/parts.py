"""Ledgers and parts on a fresh database, for tests that drive the stages in their own process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from pipeline.adapters.ledger.connection import make_engine
from pipeline.adapters.ledger.documents import DocumentLedger
from pipeline.adapters.ledger.drops import DropLedger
from pipeline.adapters.ledger.generations import GenerationLedger
from pipeline.adapters.ledger.jobs import JobLedger
from pipeline.adapters.ledger.passages import PassageLedger
from pipeline.adapters.ledger.preparing import PrepareLedger
from pipeline.adapters.ledger.reconciling import ReconcileLedger
from pipeline.adapters.ledger.swaps import SwapLedger
from pipeline.adapters.ledger.sweeping import SweepLedger
from pipeline.documents import Lane, Passage, Upload
from pipeline.fingerprint import Space, digest
from pipeline.generation import SCHEMA_VERSION, Generation
from pipeline.receive import receive
from pipeline.work import GroupFigures, Prepared

SPACE = Space(
    embedder="fake",
    model="fake",
    weights="0",
    dimension=8,
    pooling="mean",
    normalised=True,
    query_prefix="",
    passage_prefix="",
    precision="fp32",
)
FIGURES = GroupFigures(passages=1, copied=0, tokens=10, slots=10, seconds=0.1)


@dataclass
class Ledgers:
    """Every ledger on one engine, and the few steps tests repeat."""

    engine: sa.Engine

    def __post_init__(self) -> None:
        self.documents = DocumentLedger(self.engine)
        self.preparing = PrepareLedger(self.engine)
        self.passages = PassageLedger(self.engine)
        self.generations = GenerationLedger(self.engine)
        self.sweeping = SweepLedger(self.engine)
        self.jobs = JobLedger(self.engine)
        self.swaps = SwapLedger(self.engine)
        self.drops = DropLedger(self.engine)
        self.reconciling = ReconcileLedger(self.engine)

    def generation(self, rule: str = "r1:400") -> Generation:
        made = self.generations.ensure(SPACE, rule, SCHEMA_VERSION, f"t{uuid.uuid4().hex[:8]}")
        assert made is not None
        return made

    def put(self, key: str, body: str, *, lane: Lane = Lane.LIVE, tenant: str = "default", **fields):
        return receive(self.documents, tenant, Upload(key=key, body=body, **fields), lane)

    def prepare(self, pieces: int = 2, lane: Lane = Lane.LIVE) -> int:
        """Prepares everything pending in a lane with ``pieces`` passages a document."""
        count = 0
        while claimed := self.preparing.claim_documents(lane, 100, 60, 600):
            for document in claimed:
                count += self.preparing.store_prepared(document, self.prepared(document, pieces))
            self.preparing.finish_claim(claimed[0].token)
        return count

    def prepared(self, document, pieces: int = 2) -> list[Prepared]:
        passages = [
            Passage(
                ordinal=i,
                text=f"{document.text.title} {i} {document.text.body_text}",
                hash=digest(document.text.body_text, i),
                start=0,
                end=1,
                headings=(),
                tokens=10,
            )
            for i in range(pieces)
        ]
        return [Prepared(generation=g.id, passages=passages) for g in self.generations.active()]

    def claim(self, generation: Generation, lane: Lane = Lane.LIVE, limit: int = 100, seconds: float = 60):
        return self.passages.claim_passages(generation.id, lane, limit, seconds, 600)

    def embed(self, generation: Generation, lane: Lane = Lane.LIVE) -> int:
        """Finishes and flips whatever is pending in a lane."""
        flipped = 0
        while group := self.claim(generation, lane):
            for complete in self.passages.finish(group, group.passages, FIGURES):
                flipped += self.passages.flip(complete, [], 10)
            self.passages.finish_claim(group.token)
        return flipped

    def rows(self, sql: str, **values):
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(sql), values)
            return [dict(r) for r in result.mappings()] if result.returns_rows else []


@pytest.fixture
def ledgers(database_url: str) -> Iterator[Ledgers]:
    engine = make_engine(database_url)
    yield Ledgers(engine)
    engine.dispose()
