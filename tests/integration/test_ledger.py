"""The ledger on a real PostgreSQL: versions, claims, fences, flips, deletes, and their interleavings."""

from __future__ import annotations

import threading

import pytest

from pipeline.documents import Lane, State
from pipeline.errors import NotFound
from tests.plugins.parts import FIGURES


def state(ledgers, key):
    return ledgers.documents.view("default", key).state


def test_a_version_becomes_searchable_when_its_last_passage_is_done(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    assert state(ledgers, "a") is State.PENDING
    assert ledgers.prepare(pieces=3) == 1
    one = ledgers.claim(generation, limit=2)
    assert ledgers.passages.finish(one, one.passages, FIGURES) == []
    two = ledgers.claim(generation)
    (complete,) = ledgers.passages.finish(two, two.passages, FIGURES)
    assert (complete.version, complete.total) == (1, 3)
    assert state(ledgers, "a") is State.PENDING
    assert ledgers.passages.flip(complete, [], 10)
    assert state(ledgers, "a") is State.SEARCHABLE
    assert ledgers.rows("SELECT count(*) AS n FROM passage")[0]["n"] == 0


def test_keys_missing_at_the_read_back_are_embedded_again(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation)
    (complete,) = ledgers.passages.finish(group, group.passages, FIGURES)
    assert not ledgers.passages.flip(complete, [1], 10)
    assert state(ledgers, "a") is State.PENDING
    again = ledgers.claim(generation)
    assert [p.ordinal for p in again.passages] == [1]
    (complete,) = ledgers.passages.finish(again, again.passages, FIGURES)
    assert ledgers.passages.flip(complete, [], 10)


def test_two_workers_finishing_one_document_flip_it_once(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare(pieces=2)
    one, two = ledgers.claim(generation, limit=1), ledgers.claim(generation, limit=1)
    completes = []
    threads = [
        threading.Thread(target=lambda g=g: completes.extend(ledgers.passages.finish(g, g.passages, FIGURES)))
        for g in (one, two)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(completes) == 1
    assert ledgers.passages.flip(completes[0], [], 10)
    assert not ledgers.passages.flip(completes[0], [], 10)


def test_a_worker_that_died_before_the_flip_is_found(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare()
    group = ledgers.claim(generation)
    ledgers.passages.finish(group, group.passages, FIGURES)
    (complete,) = ledgers.sweeping.complete_unflipped()
    assert (complete.version, complete.total) == (1, 2)


def test_a_late_commit_with_a_lapsed_claim_is_fenced_off(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare(pieces=1)
    late = ledgers.claim(generation, seconds=-1)
    ledgers.sweeping.lapse_claims(2)
    assert ledgers.passages.finish(late, late.passages, FIGURES) == []
    assert ledgers.rows("SELECT lapses FROM passage") == [{"lapses": 0}], "others may have killed the worker"
    fresh = ledgers.passages.claim_suspects(generation.id, 60, 600)
    assert [c.version for c in ledgers.passages.finish(fresh, fresh.passages, FIGURES)] == [1]
    assert ledgers.rows("SELECT value FROM counter WHERE name = 'fenced_commits'") == [{"value": 1}]


def test_lapsed_groups_come_back_in_halves_until_the_killer_is_alone_and_parked(ledgers):
    generation = ledgers.generation()
    for i in range(8):
        ledgers.put(f"d{i}", f"text {i}")
    ledgers.prepare(pieces=1)
    killer = ledgers.rows(
        "SELECT min(p.id) AS id FROM passage p JOIN document d ON d.id = p.document WHERE d.key = 'd5'"
    )[0]["id"]
    sizes = []
    for _ in range(40):
        group = ledgers.claim(generation, seconds=60) or ledgers.passages.claim_suspects(generation.id, 60, 600)
        if group is None:
            break
        ledgers.passages.note_probe(generation.id)
        if any(p.id == killer for p in group.passages):
            sizes.append(len(group.passages))
            ledgers.rows("UPDATE claim SET deadline = clock_timestamp() - interval '1 second'")
            ledgers.sweeping.lapse_claims(2)
            ledgers.rows("UPDATE passage SET not_before = clock_timestamp() WHERE state = 'pending'")
            continue
        for complete in ledgers.passages.finish(group, group.passages, FIGURES):
            assert ledgers.passages.flip(complete, [], 10)
        ledgers.passages.finish_claim(group.token)
    assert sizes == [8, 4, 2, 1, 1]
    states = {f"d{i}": state(ledgers, f"d{i}") for i in range(8)}
    assert states.pop("d5") is State.PARKED
    assert set(states.values()) == {State.SEARCHABLE}
    assert "lost 2 times" in ledgers.documents.view("default", "d5").error


def test_a_suspect_that_was_lost_alone_waits_longer_each_time(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare(pieces=1)
    ledgers.claim(generation, seconds=-1)
    ledgers.sweeping.lapse_claims(5)
    ledgers.passages.claim_suspects(generation.id, -1, 600)
    ledgers.sweeping.lapse_claims(5)
    assert ledgers.passages.claim_suspects(generation.id, 60, 600) is None
    assert not ledgers.passages.suspects_waiting([generation.id])
    ledgers.rows("UPDATE passage SET not_before = clock_timestamp() - interval '1 second'")
    assert ledgers.passages.suspects_waiting([generation.id])
    assert ledgers.passages.claim_suspects(generation.id, 60, 600) is not None


def test_a_document_that_kills_whoever_cuts_it_is_parked_alone(ledgers):
    ledgers.generation()
    for i in range(6):
        ledgers.put(f"d{i}", f"text {i}")
    lose = "UPDATE claim SET deadline = clock_timestamp() - interval '1 second'"
    ledgers.rows(
        "INSERT INTO embed_log (generation, lane, passages, copied, tokens, slots, seconds)"
        " VALUES (1, 0, 1, 0, 1, 1, 1)"
    )
    sizes = []
    for _ in range(30):
        claimed = ledgers.preparing.claim_documents(Lane.LIVE, 10, 60, 600) or ledgers.preparing.claim_suspects(60, 600)
        if not claimed:
            break
        assert ledgers.preparing.claim_suspects(60, 600) == [] or len(sizes) == 0, "one suspect at a time"
        ledgers.rows("UPDATE embed_log SET at = clock_timestamp()")
        if any(c.text.body == "text 3" for c in claimed):
            sizes.append(len(claimed))
            ledgers.rows(lose)
            ledgers.sweeping.lapse_claims(2)
            ledgers.rows("UPDATE prepare_job SET not_before = clock_timestamp() WHERE state = 'pending'")
            continue
        for each in claimed:
            assert ledgers.preparing.store_prepared(each, ledgers.prepared(each))
        ledgers.preparing.finish_claim(claimed[0].token)
    assert sizes == [6, 3, 2, 1, 1] or sizes == [6, 3, 1, 1], sizes
    states = {f"d{i}": state(ledgers, f"d{i}") for i in range(6)}
    assert states.pop("d3") is State.PARKED
    assert set(states.values()) == {State.PENDING}


def test_claims_of_dead_processes_lapse_at_once(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text")
    ledgers.prepare(pieces=1)
    ledgers.claim(generation)
    ledgers.rows("UPDATE claim SET pid = 999999")
    ledgers.sweeping.lapse_claims(2, [999999])
    assert ledgers.rows("SELECT count(*) AS n FROM claim")[0]["n"] == 0


def test_an_upload_during_its_own_embedding_waits_and_then_wins(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation, limit=1)
    for text in ("two", "three", "four"):
        ledgers.put("a", text)
        assert ledgers.prepare(pieces=2) == 1
    rest = ledgers.claim(generation)
    assert {p.version for p in (*group.passages, *rest.passages)} == {1}
    ledgers.passages.finish(group, group.passages, FIGURES)
    (complete,) = ledgers.passages.finish(rest, rest.passages, FIGURES)
    assert ledgers.passages.flip(complete, [], 10)
    assert ledgers.documents.view("default", "a").live_version == 1
    assert ledgers.prepare(pieces=2) == 1
    assert ledgers.embed(generation) == 1
    view = ledgers.documents.view("default", "a")
    assert (view.live_version, view.version, view.state) == (4, 4, State.SEARCHABLE)


def test_a_flight_nobody_started_is_replaced_and_keeps_its_place(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare()
    before = ledgers.rows("SELECT requested_at FROM embedding")[0]["requested_at"]
    ledgers.put("a", "two")
    ledgers.prepare()
    assert ledgers.rows("SELECT DISTINCT version FROM passage") == [{"version": 2}]
    assert ledgers.rows("SELECT requested_at FROM embedding")[0]["requested_at"] == before
    assert ledgers.embed(generation) == 1


def test_delete_during_embedding_leaves_no_vector_and_no_row(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=2)
    group = ledgers.claim(generation)
    assert ledgers.documents.delete("default", "a") == 2
    assert ledgers.passages.finish(group, group.passages, FIGURES) == []
    assert state(ledgers, "a") is State.DELETED
    trash = ledgers.sweeping.due_trash()
    assert [(t.version, t.total) for t in trash] == [(1, 2)]
    ledgers.sweeping.trash_done([t.id for t in trash], again_after=0)
    assert [t.passes for t in ledgers.sweeping.due_trash()] == [1], "swept again for what a late worker wrote"
    ledgers.sweeping.trash_done([t.id for t in trash], again_after=0)
    assert ledgers.sweeping.due_trash() == []


def test_prepare_that_lost_its_claim_or_its_version_writes_nothing(ledgers):
    ledgers.generation()
    ledgers.put("a", "one")
    (claimed,) = ledgers.preparing.claim_documents(Lane.LIVE, 10, 60, 600)
    ledgers.put("a", "two")
    assert not ledgers.preparing.store_prepared(claimed, ledgers.prepared(claimed))
    assert ledgers.prepare() == 1
    assert ledgers.rows("SELECT DISTINCT version FROM passage") == [{"version": 2}]


def test_prepare_against_a_new_generation_is_done_again_for_both(ledgers):
    ledgers.generation("r1:400")
    ledgers.put("a", "one")
    (claimed,) = ledgers.preparing.claim_documents(Lane.LIVE, 10, 60, 600)
    old = ledgers.prepared(claimed)
    ledgers.generation("r1:200")
    assert not ledgers.preparing.store_prepared(claimed, old)
    assert ledgers.prepare() == 1
    assert {r["generation"] for r in ledgers.rows("SELECT generation FROM passage")} == {1, 2}


def test_documents_without_passages_are_searchable_at_once(ledgers):
    ledgers.generation()
    ledgers.put("empty", " ")
    ledgers.prepare(pieces=0)
    view = ledgers.documents.view("default", "empty")
    assert (view.state, view.passages) == (State.SEARCHABLE, 0)


def test_parked_documents_go_on_serving_the_old_version(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.prepare(pieces=1)
    ledgers.embed(generation)
    ledgers.put("a", "poison")
    ledgers.prepare(pieces=1)
    for _ in range(3):
        group = ledgers.claim(generation)
        ledgers.passages.fail_passage(group, group.passages[0], "ValueError: no", 0, 3)
    view = ledgers.documents.view("default", "a")
    assert (view.state, view.live_version, view.error) == (State.PARKED, 1, "ValueError: no")
    assert ledgers.put("a", "poison").changed, "the same text may be tried again by uploading it again"
    ledgers.put("a", "healthy")
    ledgers.prepare(pieces=1)
    ledgers.embed(generation)
    assert ledgers.documents.view("default", "a").live_version == 4


def test_claims_are_fair_between_tenants_and_skip_what_is_locked(ledgers):
    generation = ledgers.generation()
    for i in range(12):
        ledgers.put(f"d{i}", f"text {i}", tenant="big")
    ledgers.put("x", "text", tenant="small")
    ledgers.prepare(pieces=1)
    group = ledgers.claim(generation, limit=4)
    assert {p.tenant for p in group.passages} == {"big", "small"}
    other = ledgers.claim(generation, limit=100)
    assert not {p.id for p in group.passages} & {p.id for p in other.passages}


def test_forgotten_documents_are_queued_again(ledgers):
    ledgers.generation()
    ledgers.put("a", "one")
    ledgers.rows("DELETE FROM prepare_job")
    ledgers.rows("UPDATE job SET finished_at = clock_timestamp()")
    ledgers.rows("UPDATE document SET updated_at = updated_at - interval '1 minute'")
    assert ledgers.sweeping.requeue_forgotten() == 1
    assert ledgers.prepare(lane=Lane.BACKFILL) == 1
    assert ledgers.sweeping.requeue_forgotten() == 0


def test_one_generation_however_many_start_at_once(ledgers):
    made = []
    threads = [threading.Thread(target=lambda: made.append(ledgers.generation().id)) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(made) == {1}
    assert ledgers.rows("SELECT count(*) AS n FROM job")[0]["n"] == 1


def test_a_second_fingerprint_builds_and_a_dropped_one_stays_dropped(ledgers):
    first = ledgers.generation("r1:400")
    second = ledgers.generation("r1:200")
    assert (first.status, second.status) == ("serving", "building")
    ledgers.rows("UPDATE generation SET status = 'dropped' WHERE id = :id", id=second.id)
    from pipeline.generation import SCHEMA_VERSION
    from tests.plugins.parts import SPACE

    assert ledgers.generations.ensure(SPACE, "r1:200", SCHEMA_VERSION, "t") is None
    assert ledgers.generations.ensure(SPACE, "r1:200", SCHEMA_VERSION, "t", force=True) is not None


def test_tenants_see_only_their_own(ledgers):
    ledgers.generation()
    ledgers.put("a", "one", tenant="alpha")
    with pytest.raises(NotFound):
        ledgers.documents.view("beta", "a")
    assert ledgers.documents.page("beta", "", 10, {}) == []
    assert [v.key for v in ledgers.documents.page("alpha", "", 10, {"state": "pending"})] == ["a"]


def test_a_claim_that_ran_out_before_its_worker_finished_is_taken_back(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "one")
    ledgers.put("b", "one")
    (late,) = {d.token for d in ledgers.preparing.claim_documents(Lane.LIVE, 1, 60, 600)}
    ledgers.prepare()
    group = ledgers.claim(generation, limit=1)
    ledgers.rows("UPDATE claim SET deadline = clock_timestamp() - interval '1 second'")
    assert ledgers.passages.finish(group, group.passages, FIGURES) == []
    ledgers.passages.finish_claim(group.token)
    ledgers.preparing.finish_claim(late)
    ledgers.sweeping.lapse_claims(2)
    for table in ("passage", "prepare_job"):
        assert ledgers.rows(f"SELECT count(*) AS n FROM {table} WHERE state = 'claimed'") == [{"n": 0}]
    assert ledgers.rows("SELECT count(*) AS n FROM claim") == [{"n": 0}]


def test_upload_to_searchable_is_counted_in_a_histogram(ledgers):
    from pipeline.adapters.ledger.status import StatusLedger

    generation = ledgers.generation()
    for i in range(3):
        ledgers.put(f"d{i}", f"text {i}")
    ledgers.rows("UPDATE document_version SET created_at = created_at - interval '20 seconds' WHERE document = 1")
    ledgers.prepare()
    ledgers.embed(generation)
    live = StatusLedger(ledgers.engine).searchable_histogram()[Lane.LIVE]
    counts = dict(live.buckets)
    assert (counts["10.0"], counts["30.0"], counts["+Inf"]) == (2, 3, 3)
    assert 20 <= live.seconds < 30
