"""PostgreSQL and the vector store are compared both ways; parked work is listed, retried and dropped."""

from __future__ import annotations

import pytest

from pipeline.adapters.ledger.parking import ParkingLedger
from pipeline.adapters.ledger.reconciling import ReconcileLedger
from pipeline.documents import State
from pipeline.errors import NotFound
from pipeline.reconcile import Difference, reconcile
from tests.integration.stages_bench import paragraphs


def run(bench):
    ledger = ReconcileLedger(bench.ledgers.engine)
    ledger.due(0)
    bench.ledgers.rows("UPDATE job SET not_before = clock_timestamp() WHERE name LIKE 'reconcile:%'")
    return reconcile(bench.ledgers.jobs, ledger, bench.store, bench.ledgers.generations.active(), 60)


def test_nothing_differs_after_ordinary_work(bench):
    for i in range(3):
        bench.ledgers.put(f"d{i}", paragraphs(3, i))
    bench.run()
    assert run(bench) == [Difference(documents=3, missing=0, orphans=0)]


def test_lost_vectors_are_embedded_again_while_the_rest_serves_and_orphans_are_deleted(bench):
    for i in range(3):
        bench.ledgers.put(f"d{i}", paragraphs(4, i))
    bench.run()
    kept = bench.keys()
    lost = min(kept)
    (document,) = bench.ledgers.rows("SELECT id FROM document WHERE key = 'd1'")
    row = bench.store.fetch(bench.generation.spec, [lost], vectors=True)
    assert row
    bench.store.delete(bench.generation.spec, [lost])
    held = bench.store._collections[bench.generation.collection].rows
    sample = next(iter(held.values()))
    from dataclasses import replace

    # A dead version's key, a key beyond the live total, and one of a document that never existed.
    for key, doc, version, ordinal in (
        (f"{document['id']}.0.0", document["id"], 0, 0),
        (f"{document['id']}.1.99", document["id"], 1, 99),
        ("99999.1.0", 99999, 1, 0),
    ):
        bench.store.upsert(
            bench.generation.spec, [replace(sample, key=key, document=doc, version=version, ordinal=ordinal)]
        )
    before = bench.encoder.encoded
    assert run(bench) == [Difference(documents=3, missing=1, orphans=3)]
    assert {bench.state(f"d{i}") for i in range(3)} == {State.SEARCHABLE}, "what is left goes on serving"
    bench.run()
    assert bench.keys() == kept == bench.wanted()
    assert bench.encoder.encoded - before == 1, "only the lost passage is encoded again"
    assert bench.ledgers.rows("SELECT count(*) AS n FROM passage") == [{"n": 0}]
    assert run(bench) == [Difference(documents=3, missing=0, orphans=0)]


def test_a_version_in_flight_is_no_orphan(bench):
    bench.ledgers.put("a", paragraphs(3))
    bench.run()
    bench.ledgers.put("a", paragraphs(6, 50))
    bench.prepare()
    group = bench.ledgers.claim(bench.generation, limit=1)
    held = bench.store._collections[bench.generation.collection].rows
    from dataclasses import replace

    key = f"{group.passages[0].document}.2.0"
    sample = next(iter(held.values()))
    bench.store.upsert(bench.generation.spec, [replace(sample, key=key, version=2, ordinal=0)])
    assert run(bench)[0].orphans == 0
    assert key in bench.keys()


def test_parked_documents_are_listed_retried_and_dropped(bench):
    parking = ParkingLedger(bench.ledgers.engine)
    bench.ledgers.put("a", "healthy")
    bench.run()
    bench.ledgers.put("a", "POISON")
    bench.run()
    for _ in range(4):
        bench.drain()
    (parked,) = parking.parked("default")
    assert (parked.key, parked.version, parked.stage, parked.items, parked.errors) == ("a", 2, "embed", 1, 3)
    assert "cannot digest" in parked.error
    assert parking.parked("other") == []
    with pytest.raises(NotFound):
        parking.retry("other", "a")
    assert parking.retry("default", "a") == 1
    assert bench.state("a") is State.PENDING
    for _ in range(4):
        bench.drain()
    assert bench.state("a") is State.PARKED
    assert parking.drop("default", "a") == 1
    assert parking.parked("default") == []
    view = bench.ledgers.documents.view("default", "a")
    assert view.live_version == 1
    bench.ledgers.put("a", "healthy again")
    bench.run()
    assert bench.state("a") is State.SEARCHABLE
