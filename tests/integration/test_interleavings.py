"""Two connections at once, step by step: what must hold whichever of them comes first."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import sqlalchemy as sa

from pipeline.adapters.ledger.claims import holds
from pipeline.adapters.ledger.connection import GENERATIONS_LOCK
from pipeline.adapters.ledger.flips import flip_row
from pipeline.adapters.ledger.lookups import LookupLedger
from pipeline.documents import Lane, State
from pipeline.errors import Conflict
from tests.plugins.parts import FIGURES


def live_versions(ledgers, generation, grace, key="a"):
    """What a lookup that has candidates of this document may show of it, newest first."""
    found = LookupLedger(ledgers.engine).liveness(
        "default", generation.id, documents=[], keys=[key], domain=None, metadata={}, grace=grace
    )
    return [v for d in found.documents.values() for v in (d.live_version, d.prev_version) if v is not None]


@contextmanager
def waiting(ledgers, call):
    """Runs ``call`` in a thread and enters the block once the database has it waiting for a lock."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except Exception as error:  # handed to the test
            outcome.append(error)

    before = _blocked(ledgers)
    thread = threading.Thread(target=run)
    thread.start()
    while _blocked(ledgers) == before:
        assert not outcome, f"it did not wait: {outcome}"
        time.sleep(0.02)
    yield outcome
    thread.join(60)
    assert outcome, "it still waits"


def _blocked(ledgers):
    return ledgers.rows(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )[0]["n"]


def put_and_embed(ledgers, generation, text, key="a"):
    ledgers.put(key, text)
    ledgers.prepare(pieces=2)
    assert ledgers.embed(generation) == 1


# Truth 3


def test_a_reader_sees_the_old_version_until_the_flip_commits_and_both_during_the_grace(ledgers):
    generation = ledgers.generation()
    put_and_embed(ledgers, generation, "one")
    ledgers.put("a", "two")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    with ledgers.engine.begin() as flipping:
        flipping.execute(sa.text("SELECT FROM document WHERE id = :d FOR NO KEY UPDATE"), {"d": complete.document})
        assert flip_row(flipping, generation.id, complete.document, 2)
        assert live_versions(ledgers, generation, 10) == [1], "the flip has not been committed"
    assert live_versions(ledgers, generation, 10) == [2, 1]
    assert live_versions(ledgers, generation, 0) == [2]
    trash = ledgers.rows("SELECT version, due - clock_timestamp() > interval '10 seconds' AS later FROM vector_trash")
    assert trash == [{"version": 1, "later": True}], "a reader in its grace still finds the old vectors"


def test_a_version_whose_keys_are_not_all_there_never_serves(ledgers):
    generation = ledgers.generation()
    put_and_embed(ledgers, generation, "one")
    ledgers.put("a", "two")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    assert not ledgers.passages.flip(complete, [0], 10)
    assert live_versions(ledgers, generation, 10) == [1]


def test_a_delete_that_answered_is_seen_by_every_lookup_that_starts_after_it(ledgers):
    generation = ledgers.generation()
    put_and_embed(ledgers, generation, "one")
    put_and_embed(ledgers, generation, "two")
    ledgers.documents.delete("default", "a")
    assert live_versions(ledgers, generation, 1000) == []


def test_a_delete_waits_for_a_flip_under_way_and_then_takes_it_with_it(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    with ledgers.engine.connect() as flipping:
        flipping.execute(sa.text("SELECT FROM document WHERE id = :d FOR NO KEY UPDATE"), {"d": complete.document})
        with waiting(ledgers, lambda: ledgers.documents.delete("default", "a")) as deleted:
            assert flip_row(flipping, generation.id, complete.document, 1)
            flipping.commit()
    assert deleted == [2]
    assert live_versions(ledgers, generation, 1000) == []
    assert ledgers.rows("SELECT version, total FROM vector_trash") == [{"version": 1, "total": 2}]


# Truth 6


def test_a_claim_cannot_lapse_while_its_commit_is_under_way(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=1)
    group = ledgers.claim(generation, seconds=0.5)
    with ledgers.engine.begin() as committing:
        assert holds(committing, group.token)
        time.sleep(0.6)
        ledgers.sweeping.lapse_claims(2)
        assert ledgers.rows("SELECT state, lapses FROM passage") == [{"state": "claimed", "lapses": 0}]
    ledgers.sweeping.lapse_claims(2)
    assert ledgers.rows("SELECT state FROM passage") == [{"state": "pending"}]
    assert ledgers.passages.finish(group, group.passages, FIGURES) == []


def test_two_sweeps_take_a_lapsed_claim_back_once(ledgers):
    generation = ledgers.generation()
    for i in range(4):
        ledgers.put(f"d{i}", f"text {i}")
    ledgers.prepare(pieces=1)
    ledgers.claim(generation, seconds=-1)
    threads = [threading.Thread(target=ledgers.sweeping.lapse_claims, args=(2,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert ledgers.rows("SELECT value FROM counter WHERE name = 'lapsed_claims'") == [{"value": 1}]
    assert ledgers.rows("SELECT count(DISTINCT cohort) AS n FROM passage WHERE state = 'pending'") == [{"n": 2}]


def test_a_late_error_of_a_lapsed_claim_counts_against_nobody(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=1)
    late = ledgers.claim(generation, seconds=-1)
    ledgers.sweeping.lapse_claims(2)
    assert not ledgers.passages.fail_passage(late, late.passages[0], "ValueError: late", 0, 1)
    assert ledgers.rows("SELECT state, errors FROM passage") == [{"state": "pending", "errors": 0}]


def test_two_sweeps_at_once_do_not_skip_the_second_pass_over_the_trash(ledgers):
    generation = ledgers.generation()
    put_and_embed(ledgers, generation, "one")
    ledgers.documents.delete("default", "a")
    ids = [t.id for t in ledgers.sweeping.due_trash()]
    ledgers.sweeping.trash_done(ids, again_after=900)
    ledgers.sweeping.trash_done(ids, again_after=900)
    assert ledgers.rows("SELECT passes FROM vector_trash") == [{"passes": 1}], "a late worker's vectors go with it"


def test_two_beats_make_one_sweep(ledgers):
    assert [ledgers.sweeping.tick(60) for _ in range(3)] == [True, False, False]
    assert [ledgers.sweeping.tick(0) for _ in range(2)] == [False, False], "the first one's minute is not over"
    ledgers.rows("UPDATE job SET not_before = clock_timestamp() WHERE name = 'tick:sweep'")
    assert [ledgers.sweeping.tick(0) for _ in range(2)] == [True, True]


# Truth 8


def building(ledgers):
    """A serving generation with one document, and one that is built as far."""
    serving = ledgers.generation("r1:400")
    put_and_embed(ledgers, serving, "one")
    other = ledgers.generation("r1:200")
    ledgers.rows("INSERT INTO prepare_job (document, tenant, lane) SELECT id, tenant, 1 FROM document")
    ledgers.prepare(pieces=2, lane=Lane.BACKFILL)
    assert ledgers.embed(other, Lane.BACKFILL) == 1
    return serving, other


def test_a_swap_counts_a_flip_that_is_under_way(ledgers):
    serving, other = building(ledgers)
    ledgers.put("a", "two")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(serving)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    with ledgers.engine.connect() as flipping:
        flipping.execute(sa.text("SELECT FROM document WHERE id = :d FOR NO KEY UPDATE"), {"d": complete.document})
        assert flip_row(flipping, serving.id, complete.document, 2)
        with waiting(ledgers, lambda: ledgers.swaps.swap(other.id)) as swapped:
            flipping.commit()
    assert isinstance(swapped[0], Conflict), "the served document would have grown older"
    assert ledgers.generations.serving().id == serving.id


def test_a_flip_waits_for_a_swap_under_way(ledgers):
    serving, other = building(ledgers)
    ledgers.put("a", "two")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(serving)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    with ledgers.engine.connect() as swapping:
        swapping.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": GENERATIONS_LOCK})
        swapping.execute(sa.text("LOCK TABLE embedding IN SHARE MODE"))
        with waiting(ledgers, lambda: ledgers.passages.flip(complete, [], 10)) as flipped:
            swapping.commit()
    assert flipped == [True]


def test_prepare_waits_for_a_new_generation_and_then_writes_for_it_too(ledgers):
    ledgers.generation("r1:400")
    ledgers.put("a", "one")
    (claimed,) = ledgers.preparing.claim_documents(Lane.LIVE, 10, 60, 600)
    old = ledgers.prepared(claimed)
    with ledgers.engine.connect() as adding:
        adding.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": GENERATIONS_LOCK})
        with waiting(ledgers, lambda: ledgers.preparing.store_prepared(claimed, old)) as stored:
            adding.execute(
                sa.text(
                    "INSERT INTO generation (fingerprint, space, rule, schema_version, collection, status)"
                    " SELECT 'new', space, 'r1:200', schema_version, 'new', 'building' FROM generation LIMIT 1"
                )
            )
            adding.execute(sa.text("CREATE TABLE embedding_g2 PARTITION OF embedding FOR VALUES IN (2)"))
            adding.commit()
    assert stored == [False]
    assert ledgers.prepare() == 1
    assert {r["generation"] for r in ledgers.rows("SELECT generation FROM passage")} == {1, 2}


# Truth 13


def test_a_thousand_uploads_of_one_key_embed_a_handful_of_versions_and_the_last_one_wins(ledgers):
    generation = ledgers.generation()
    served = []
    for i in range(1000):
        ledgers.put("a", f"text {i}")
        if i % 50 == 0:
            ledgers.prepare(pieces=1)
        if i % 100 == 0 and (group := ledgers.claim(generation)) is not None:
            for complete in ledgers.passages.finish(group, group.passages, FIGURES):
                assert ledgers.passages.flip(complete, [], 10)
                served.append(complete.version)
    while ledgers.prepare(pieces=1):
        ledgers.embed(generation)
    view = ledgers.documents.view("default", "a")
    assert (view.version, view.live_version, view.state) == (1000, 1000, State.SEARCHABLE)
    assert served == sorted(served)
    assert ledgers.rows("SELECT sum(passages) AS n FROM embed_log")[0]["n"] <= 21
    assert ledgers.rows("SELECT count(*) AS n FROM document_version")[0]["n"] <= 2, "texts nobody serves are gone"


def test_one_upload_a_second_with_slower_embedding_still_completes_versions(ledgers):
    generation = ledgers.generation()
    served = []
    for flight in range(5):
        ledgers.put("a", f"flight {flight}")
        ledgers.prepare(pieces=2)
        first = ledgers.claim(generation, limit=1)
        for second in range(3):
            ledgers.put("a", f"flight {flight} while embedding {second}")
            ledgers.prepare(pieces=2)
        rest = ledgers.claim(generation)
        assert {p.version for p in first.passages} == {p.version for p in rest.passages}, "the flight is not replaced"
        ledgers.passages.finish(first, first.passages, FIGURES)
        (complete,) = ledgers.passages.finish(rest, rest.passages, FIGURES)
        assert ledgers.passages.flip(complete, [], 10)
        served.append(complete.version)
    assert len(set(served)) == 5
