"""Workers are killed, ended, frozen and thawed in the middle of their work."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pipeline.documents import Lane
from tests.faults.harness import ROUNDS, text

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
    report = fleet.check("gpu child SIGKILL", recovery=recovery)
    assert report.parked == 0
    assert report.recomputed <= BATCHES_IN_FLIGHT * GROUP
    assert report.lapsed >= 1
