"""A fresh fleet for each fault test, on the services that tests may kill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ops.stack import Stack
from tests.faults.harness import Fleet

EACH = int(os.environ.get("WELLHEAD_FAULTS_EACH", "1"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``make faults`` injects every fault several times: each time into a fresh fleet."""
    if EACH > 1 and "make_fleet" in metafunc.fixturenames:
        metafunc.fixturenames.append("round_number")
        metafunc.parametrize("round_number", range(EACH))


@pytest.fixture
def make_fleet(killable_services: Stack) -> Iterator[Callable[..., Fleet]]:
    """``make_fleet(embed_model="fault-200")``: settings of its own, nothing started yet."""
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(killable_services, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """A running fleet that has embedded its first document."""
    made = make_fleet()
    made.start_all()
    return made
