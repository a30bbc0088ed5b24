"""Documents that break the encoder fail alone, are parked with their reason, and the rest goes on."""

from __future__ import annotations

import pytest

from pipeline.documents import Lane
from tests.faults.harness import text
from tests.faults.invariant import check


def poison(fleet, *kinds):
    for kind in kinds:
        fleet.put(f"bad-{kind}", f"this text fault_{kind} the encoder", lane=Lane.BACKFILL)


def test_errors_memory_and_nans_are_parked_alone_with_their_reason(fleet):
    poison(fleet, "raises", "memory", "nans")
    fleet.put("long-line", "x" * 200_000, lane=Lane.BACKFILL)
    fleet.load(10)
    report = check(fleet, "poison: raises, MemoryError, NaN, a line of 200 kB", injected=4, recovery=fleet.settle())
    errors = {k: fleet.parts.documents.view("default", f"bad-{k}").error for k in ("raises", "memory", "nans")}
    assert errors["raises"].startswith("ValueError: cannot digest this (encoder.py:")
    assert errors["memory"].startswith("MemoryError")
    assert "NaN" in errors["nans"]
    assert fleet.state("long-line") in ("searchable", "parked")
    assert report.parked == 3 + (fleet.state("long-line") == "parked")
    assert report.lapsed == 0


@pytest.mark.faults_long
def test_five_megabytes_of_one_line_take_longer_than_a_claim_and_go_through_once(fleet):
    fleet.put("long-line", "x" * 5_000_000)
    report = check(fleet, "poison: 5 MB of one line", recovery=fleet.settle())
    assert (report.parked, report.lapsed, report.fenced) == (0, 0, 0)


def test_a_text_that_ends_the_process_is_parked_and_its_neighbours_are_not(fleet):
    poison(fleet, "exits")
    for i in range(7):
        fleet.put(f"good{i}", text(i, 1), lane=Lane.BACKFILL)
    report = check(fleet, "poison: os._exit", recovery=fleet.settle())
    assert report.parked == 1
    assert fleet.state("bad-exits") == "parked"
    assert "lost" in fleet.parts.documents.view("default", "bad-exits").error


@pytest.mark.faults_long
def test_a_text_that_hangs_is_parked_and_its_neighbours_are_not(make_fleet):
    fleet = make_fleet(drain_hard_seconds=15)
    fleet.start_all()
    poison(fleet, "hangs")
    fleet.load(2, paragraphs=1)
    report = check(fleet, "poison: hang", recovery=fleet.settle())
    assert report.parked == 1
    assert fleet.state("bad-hangs") == "parked"
