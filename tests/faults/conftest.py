"""One set of services for all fault tests, and a fresh fleet for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ops.stack import Stack, StackError
from tests.faults import harness
from tests.faults.harness import Fleet
from tests.plugins.services import unavailable

EACH = int(os.environ.get("WELLHEAD_FAULTS_EACH", "1"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``make faults`` injects every fault several times: each time into a fresh fleet."""
    if EACH > 1 and "make_fleet" in metafunc.fixturenames:
        metafunc.fixturenames.append("round_number")
        metafunc.parametrize("round_number", range(EACH))


@pytest.fixture(scope="session")
def fault_services() -> Iterator[Stack]:
    try:
        with harness.services() as stack:
            yield stack
    except StackError as error:
        unavailable(f"{error} {error.detail}")


@pytest.fixture
def make_fleet(fault_services: Stack) -> Iterator[Callable[..., Fleet]]:
    """``make_fleet(embed_model="fault-200")``: settings of its own, nothing started yet."""
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(fault_services, **settings))
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
