"""What a swap waits for, old and new code side by side, and the way out of a generation."""

from __future__ import annotations

import json

import pytest

from pipeline.adapters.ledger import sweeping as sweeping_sql
from pipeline.documents import State
from pipeline.embed import Drain
from pipeline.errors import Conflict
from pipeline.generation import SCHEMA_VERSION, Status
from pipeline.generations import in_order, retire_old
from pipeline.passages import cut_passages
from pipeline.rules import RULES
from pipeline.swapping import SwapLimits, roll_back, run_check, try_swap
from pipeline.sweep import SweepLimits, sweep
from tests.integration.stages_bench import LIMITS, SWAP, Bench, Encoder, fill_all, paragraphs, swap


@pytest.fixture
def bench(ledgers):
    made = Bench(ledgers)
    for i in range(12):
        ledgers.put(f"d{i}", paragraphs(2, i), title=f"Manual of pump {i}")
    made.run()
    return made


def look(bench, calibrated=lambda _: True):
    ledgers = bench.ledgers
    return try_swap(ledgers.generations, ledgers.swaps, ledgers.swaps, bench.store, SWAP, calibrated)


def row(bench, generation):
    (found,) = bench.ledgers.rows("SELECT * FROM generation WHERE id = :id", id=generation.id)
    return found


def statuses(bench):
    return {r["id"]: r["status"] for r in bench.ledgers.rows("SELECT id, status FROM generation")}


def tick(bench):
    ledgers = bench.ledgers
    return sweep(ledgers.sweeping, ledgers.generations, ledgers.passages, bench.store, SweepLimits())


# --- the gate


def test_nothing_is_judged_before_nearly_all_is_there(bench):
    bench.begin("r1:48")
    assert look(bench) == look(bench)
    assert not look(bench).check, "a check of an empty collection would prove nothing"


def test_a_check_of_nothing_is_no_check(bench):
    new = bench.begin("r1:48")
    ledgers = bench.ledgers
    assert run_check(ledgers.generations, ledgers.swaps, bench.store, bench.embedder_for, SWAP) is None
    assert row(bench, new)["recall_check"] is None


def test_under_steady_uploads_the_swap_still_comes(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    drain = Drain(
        bench.ledgers.passages, bench.ledgers.passages, bench.store, bench.embedder_for, bench.breaker, LIMITS
    )
    for n in range(12):
        # Between any two looks a document changes, and there is time for one group only.
        bench.ledgers.put("d0", paragraphs(2, 40 + n), title="Manual of pump 0")
        bench.prepare()
        drain.run(in_order(bench.ledgers.generations.active()), lambda: False)
        if swap(bench) is not None:
            break
    assert statuses(bench)[new.id] == "serving", row(bench, new)["held"]
    assert n < 6


def test_vectors_lost_in_the_store_hold_the_swap_until_they_are_back(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    bench.store.delete(new.spec, sorted(bench.keys(new))[:2])
    assert swap(bench) is None
    assert "lacked vectors" in row(bench, new)["held"]
    bench.run()
    assert swap(bench).id == new.id
    assert row(bench, new)["compared"] == {"documents": 12, "missing": 0, "orphans": 0}
    assert bench.keys(new) == bench.wanted(new)


def test_vectors_lost_after_the_comparison_hold_it_too(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    assert swap(bench, calibrated=lambda _: False) is None
    lost = min(bench.keys(new))
    bench.store.delete(new.spec, [lost])
    assert swap(bench) is None
    assert "1 of" in row(bench, new)["held"]


def test_a_generation_without_its_calibration_waits_for_it(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    assert swap(bench, calibrated=lambda g: g.id != new.id) is None
    assert "calibrated" in row(bench, new)["held"]
    assert swap(bench).id == new.id
    assert row(bench, new)["held"] is None


def test_documents_without_titles_are_asked_for_by_their_first_line(ledgers):
    bench = Bench(ledgers)
    for i in range(4):
        ledgers.put(f"d{i}", f"\n\n# Pump number {i} of the plant\n\n{paragraphs(1, i)}")
    bench.run()
    bench.begin("r1:48")
    fill_all(bench)
    probes = ledgers.generations.probes(2, 10)
    assert sorted(p.text for p in probes) == [f"Pump number {i} of the plant" for i in range(4)]


def test_what_was_embedded_this_moment_is_not_trusted_to_be_found_yet(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    bench.ledgers.rows("UPDATE embedding SET flipped_at = flipped_at - interval '1 hour' WHERE generation = 1")
    behind = bench.ledgers.swaps.behind
    assert (behind(1, new.id, settle=600.0), behind(1, new.id)) == (12, 0)
    with pytest.raises(Conflict):
        bench.ledgers.swaps.swap(new.id, settle=600.0)


# --- old and new code side by side


def test_a_process_without_the_rule_leaves_the_document_to_others(bench, monkeypatch):
    new = bench.begin("r2:64")
    bench.ledgers.put("a", "uploaded while old code prepares")
    fill_all_once(bench)
    assert bench.state("a") is State.SEARCHABLE, "the old generation is served as ever"
    assert bench.ledgers.rows("SELECT count(*) AS n FROM prepare_job") == [{"n": 0}]
    assert bench.ledgers.rows(
        "SELECT count(*) AS n FROM embedding WHERE generation = 2 AND target_version IS NULL"
    ) == [{"n": 13}]
    tick(bench)
    assert bench.ledgers.rows("SELECT count(*) AS n FROM prepare_job") == [{"n": 0}], "not offered again at once"
    monkeypatch.setitem(RULES, 2, cut_passages)
    bench.ledgers.rows("UPDATE embedding SET requested_at = requested_at - interval '1 minute'")
    tick(bench)
    bench.run()
    fill_all(bench)
    assert bench.keys(new) == bench.wanted(new)
    assert swap(bench).id == new.id


def fill_all_once(bench):
    """One pass of the fill over the corpus, prepared by a process that may lack the rule."""
    jobs = bench.ledgers.jobs
    jobs.fill_page(2, 0, 1000, 1000)
    bench.run()


def test_an_edit_that_old_code_prepared_is_not_lost_for_the_new_generation(bench, monkeypatch):
    with monkeypatch.context() as new_code:
        new_code.setitem(RULES, 2, cut_passages)
        new = bench.begin("r2:64")
        fill_all(bench)
    bench.ledgers.put("d0", paragraphs(2, 40), title="Manual of pump 0")
    bench.run()
    assert bench.ledgers.swaps.behind(1, new.id) == 1
    monkeypatch.setitem(RULES, 2, cut_passages)
    bench.ledgers.rows("UPDATE embedding SET requested_at = requested_at - interval '1 minute'")
    tick(bench)
    bench.run()
    assert bench.ledgers.swaps.behind(1, new.id) == 0
    assert swap(bench).id == new.id


def test_a_process_without_the_model_judges_nothing(bench):
    new = bench.begin("r1:64", Encoder(weights="new"))
    fill_all(bench)
    ledgers = bench.ledgers
    old_only = lambda space: bench.encoder if space.name == bench.encoder.space.name else None  # noqa: E731
    assert run_check(ledgers.generations, ledgers.swaps, bench.store, old_only, SWAP) is None
    assert row(bench, new)["recall_check"] is None
    assert swap(bench).id == new.id


def test_a_model_that_cannot_be_loaded_any_more_does_not_hold_its_successor(bench):
    new = bench.begin("r1:64", Encoder(weights="new"))
    fill_all(bench)
    ledgers = bench.ledgers
    new_only = lambda space: None if space.name == bench.encoder.space.name else bench.embedder_for(space)  # noqa: E731
    check = run_check(ledgers.generations, ledgers.swaps, bench.store, new_only, SWAP)
    assert (check.overlap, check.serving_self_retrieval) == (None, None)
    assert check.self_retrieval >= 0.5
    assert swap(bench).id == new.id


def test_old_and_new_code_restarting_in_turn_never_play_ping_pong(bench):
    old, new = bench.generation, bench.begin("r1:48")
    ensure = bench.ledgers.generations.ensure

    def restart_both():
        for _ in range(3):
            for rule in (old.rule, new.rule):
                ensure(bench.encoder.space, rule, SCHEMA_VERSION, "t")

    restart_both()
    fill_all(bench)
    restart_both()
    assert swap(bench).id == new.id
    restart_both()
    assert statuses(bench) == {old.id: "draining", new.id: "serving"}
    retire_old(bench.ledgers.generations, bench.ledgers.drops, bench.store, 0, 3600)
    restart_both()
    retire_old(bench.ledgers.generations, bench.ledgers.drops, bench.store, 0, 0)
    restart_both()
    assert statuses(bench) == {old.id: "dropped", new.id: "serving"}
    assert bench.ledgers.rows("SELECT value FROM counter WHERE name = 'generations_started'") == [{"value": 2}]
    assert bench.store.collections() == [new.collection]


# --- the way out


def test_a_superseded_generation_goes_with_its_collection(bench):
    second = bench.begin("r1:48")
    third = bench.begin("r1:32")
    assert statuses(bench) == {1: "serving", second.id: "retiring", third.id: "building"}
    retire_old(bench.ledgers.generations, bench.ledgers.drops, bench.store, 3600, 0)
    assert second.collection not in bench.store.collections()
    assert statuses(bench)[second.id] == "dropped"
    fill_all(bench)
    assert swap(bench).id == third.id


def test_a_build_that_is_given_up_leaves_nothing(bench):
    new = bench.begin("r1:48")
    bench.ledgers.jobs.fill_page(new.id, 0, 5, 1000)
    bench.prepare()
    assert bench.ledgers.drops.drop(new.id).status is Status.RETIRING
    bench.run()
    retire_old(bench.ledgers.generations, bench.ledgers.drops, bench.store, 3600, 0)
    assert statuses(bench)[new.id] == "dropped"
    assert bench.ledgers.rows("SELECT count(*) AS n FROM passage") == [{"n": 0}]
    assert bench.store.collections() == [bench.generation.collection]
    with pytest.raises(Conflict, match="serves"):
        bench.ledgers.drops.drop(bench.generation.id)


def test_a_collection_stays_until_the_longest_claim_and_lookup_have_passed(bench):
    new = bench.begin("r1:48")
    fill_all(bench)
    swap(bench)
    drops = bench.ledgers.drops
    assert retire_old(bench.ledgers.generations, drops, bench.store, 3600, 60) == []
    assert statuses(bench)[1] == "draining", "the soak is not over"
    assert retire_old(bench.ledgers.generations, drops, bench.store, 0, 60) == []
    assert (statuses(bench)[1], bench.generation.collection in bench.store.collections()) == ("retiring", True)
    bench.ledgers.rows(
        "UPDATE generation SET retired_at = retired_at - interval '61 seconds' WHERE status = 'retiring'"
    )
    assert [g.id for g in retire_old(bench.ledgers.generations, drops, bench.store, 0, 60)] == [1]
    assert bench.store.collections() == [new.collection]


def test_the_trash_of_a_retired_generation_does_not_hold_up_that_of_others(bench):
    new = bench.begin("r1:48")
    bench.ledgers.rows(
        "INSERT INTO vector_trash (generation, document, version, total, due)"
        " SELECT :g, 1, 0, 1, clock_timestamp() - interval '1 hour' FROM generate_series(1, 300)",
        g=new.id,
    )
    bench.ledgers.drops.drop(new.id)
    bench.ledgers.documents.delete("default", "d0")
    tick(bench)
    left = bench.ledgers.rows("SELECT min(passes) AS passes FROM vector_trash WHERE generation = 1")
    assert left == [{"passes": 1}]


def test_rolling_back_loses_nothing_and_names_what_is_still_missing(bench):
    old, new = bench.generation, bench.begin("r1:48")
    fill_all(bench)
    swap(bench)
    bench.ledgers.put("later", "uploaded after the swap")
    bench.ledgers.documents.delete("default", "d3")
    bench.run()
    swaps = bench.ledgers.swaps
    assert roll_back(swaps, swaps).id == old.id
    assert (bench.state("later"), bench.state("d3")) == (State.SEARCHABLE, State.DELETED)
    assert statuses(bench) == {old.id: "serving", new.id: "draining"}
    assert roll_back(swaps, swaps).id == new.id
    bench.ledgers.rows("UPDATE generation SET status = 'dropped' WHERE id = 1")
    with pytest.raises(Conflict, match="no generation"):
        roll_back(swaps, swaps)


# --- the sweep's queries grow with the work, never with the corpus


@pytest.mark.parametrize("name", ["UNTARGETED", "CHANGED"])
def test_forgotten_work_is_found_by_index(ledgers, name):
    generation = ledgers.generation()
    ledgers.rows(
        "INSERT INTO document (tenant, key, kind, version) SELECT 'default', 'd' || i, 'article', 1"
        " FROM generate_series(1, 20000) i"
    )
    ledgers.rows(
        "INSERT INTO embedding (generation, document, target_version, live_version) SELECT :g, id, 1, 1 FROM document",
        g=generation.id,
    )
    ledgers.rows("ANALYZE document, embedding, generation, job")
    values = {"limit": 2000, **({"retry": 30.0} if name == "UNTARGETED" else {})}
    (plan,) = ledgers.rows("EXPLAIN (FORMAT JSON) " + getattr(sweeping_sql, name), **values)
    scans = list(walk(plan["QUERY PLAN"][0]["Plan"]))
    read = {s.get("Relation Name"): s["Node Type"] for s in scans if s.get("Relation Name")}
    big = {relation: node for relation, node in read.items() if relation.startswith(("document", "embedding"))}
    assert big and all("Seq" not in node for node in big.values()), json.dumps(plan["QUERY PLAN"])


def walk(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from walk(child)


def test_a_tick_over_a_fresh_corpus_queues_nothing(bench):
    for _ in range(3):
        bench.ledgers.rows("UPDATE document SET updated_at = updated_at - interval '1 minute'")
        tick(bench)
    assert bench.ledgers.rows("SELECT count(*) AS n FROM prepare_job") == [{"n": 0}]
    assert bench.ledgers.rows("SELECT count(*) AS n FROM counter WHERE name = 'forgotten_requeued'") == [{"n": 0}]


def test_limits_say_what_the_settings_say(ledgers):
    from pipeline.settings import Settings
    from pipeline.wiring import Parts

    assert Parts(Settings(min_self_retrieval=0.4)).swap_limits == SwapLimits(min_self_retrieval=0.4)
    assert Settings().quiet_seconds >= Settings().claim_longest_seconds + 60
