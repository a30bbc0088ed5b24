"""Workers are killed, ended, frozen and thawed in the middle of their work."""

from __future__ import annotations

import os
import signal

import pytest

from tests.faults.harness import ROUNDS, text
from tests.faults.invariant import check
from workers.app import make_app

BATCHES_IN_FLIGHT = 3
GROUP = 48


def busy(fleet, at_least=1):
    """Waits until a gpu worker is in the middle of a group."""
    fleet.wait(
        "a claimed group",
        lambda: fleet.one("SELECT count(*) AS n FROM passage WHERE state = 'claimed'") >= at_least,
    )


def test_a_killed_pool_child_loses_nothing_and_takes_no_neighbour_down(fleet):
    fleet.load(40)
    busy(fleet)
    child = fleet.pool_child("gpu")
    os.kill(child, signal.SIGKILL)
    recovery = fleet.wait("another child", lambda: fleet.pool_child("gpu") not in (0, child))
    recovery += fleet.settle()
    report = check(fleet, "gpu child SIGKILL", recovery=recovery)
    assert report.parked == 0
    assert report.recomputed <= BATCHES_IN_FLIGHT * GROUP
    assert report.lapsed >= 1


def test_whole_workers_killed_under_load_lose_nothing(make_fleet):
    fleet = make_fleet()
    fleet.start_all()
    fleet.load(60)
    for round_ in range(ROUNDS):
        busy(fleet)
        fleet.put(f"live{round_}", f"uploaded in round {round_}")
        for name in ("gpu", "light") if round_ % 2 else ("gpu",):
            fleet.kill(name)
            fleet.start(name)
        fleet.load(20, start=100 + 20 * round_)
    recovery = fleet.settle()
    report = check(fleet, "worker SIGKILL", injected=ROUNDS, recovery=recovery)
    assert report.parked == 0
    assert report.recomputed <= ROUNDS * BATCHES_IN_FLIGHT * GROUP


def test_a_worker_that_is_asked_to_stop_finishes_its_group(fleet):
    fleet.load(40)
    busy(fleet)
    fleet.supervised.discard("gpu")
    fleet.children["gpu"].ask_to_stop()
    assert fleet.children["gpu"].wait_stopped(25), "the drain ended within its budget, unforced"
    assert fleet.one("SELECT count(*) AS n FROM claim WHERE queue = 'gpu'") == 0
    fleet.start("gpu")
    report = check(fleet, "worker SIGTERM", recovery=fleet.settle())
    assert (report.parked, report.lapsed, report.recomputed) == (0, 0, 0)


def test_a_frozen_worker_that_thaws_after_its_claim_is_fenced_off(make_fleet):
    # It is frozen for as long as the others take: its task's time must not be up when it thaws.
    fleet = make_fleet(embed_model="fault-300", drain_hard_seconds=600)
    fleet.start_all()
    fleet.load(12)
    fleet.put("a", text(999, 2))
    busy(fleet, 12)
    fleet.signal("gpu", signal.SIGSTOP)
    frozen_at = fleet.one("SELECT max(token) AS n FROM claim WHERE queue = 'gpu'")
    fleet.put("a", text(1999, 3))
    lapsed = lambda: not fleet.sql("SELECT 1 FROM claim WHERE queue = 'gpu' AND token <= :t", t=frozen_at)  # noqa: E731
    fleet.wait("the frozen worker's claims lapse", lapsed)
    fleet.start("gpu2")
    recovery = fleet.settle()
    newest = {k: fleet.parts.documents.view("default", k).live_version for _, k in fleet.newest}
    fleet.signal("gpu", signal.SIGCONT)
    fleet.wait("a late commit that is refused", lambda: fleet.counter("fenced_commits") > 0)
    report = check(fleet, "worker SIGSTOP", recovery=recovery)
    assert report.fenced >= 1
    assert report.parked == 0
    assert {k: fleet.parts.documents.view("default", k).live_version for _, k in fleet.newest} == newest


def test_the_same_message_fifty_times_to_two_workers_has_one_effect(fleet):
    from workers import enqueue

    fleet.start("gpu2")
    fleet.load(10)
    for _ in range(50):
        enqueue.prepare(fleet.settings.broker_url)
        enqueue.drain(fleet.settings.broker_url)
    report = check(fleet, "one message ×50", injected=50, recovery=fleet.settle())
    assert (report.recomputed, report.parked, report.fenced) == (0, 0, 0)
    assert fleet.one("SELECT sum(passages - copied) AS n FROM embed_log") == report.wanted


def test_a_new_version_and_a_delete_during_the_batch(make_fleet):
    fleet = make_fleet(embed_model="fault-100")
    fleet.start_all()
    fleet.load(12)
    busy(fleet)
    for i in range(0, 12, 3):
        fleet.put(f"d{i}", text(500 + i, 4))
        fleet.delete(f"d{i + 1}")
    fleet.delete("d2")
    fleet.put("d2", text(2))
    report = check(fleet, "PUT and DELETE in mid-batch", injected=9, recovery=fleet.settle())
    assert report.parked == 0
    assert fleet.parts.documents.view("default", "d2").live_version == 3


def test_an_upload_that_nobody_rang_for_is_found(fleet):
    fleet.put("silent", text(1, 2), ring=False)
    report = check(fleet, "API killed before publish", recovery=fleet.settle())
    assert report.parked == 0
    assert fleet.state("silent") == "searchable"


@pytest.mark.faults_long
def test_two_beats_have_the_effect_of_one(fleet):
    fleet.start("beat2")
    fleet.load(20)
    fleet.settle()
    fleet.delete("d0")
    report = check(fleet, "two beats", recovery=fleet.settle())
    deleted = 6  # the passages of d0 were embedded and are not wanted any more
    assert (report.recomputed, report.parked) == (deleted, 0)


@pytest.mark.faults_long
def test_a_worker_that_is_connected_and_deaf_is_started_again(fleet):
    make_app(fleet.settings.broker_url).control.cancel_consumer("gpu", reply=True, timeout=5)
    fleet.load(5)
    report = check(fleet, "a consumer that stopped listening", injected=1, recovery=fleet.settle())
    assert report.parked == 0
    assert "none is heard" in fleet.children["gpu"].log.read_text()
