"""A fleet whose workers can be started again with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ops.stack import Stack
from tests.acceptance.reindexing import Reindexing


@pytest.fixture
def make_reindexing(killable_services: Stack) -> Iterator[Callable[..., Reindexing]]:
    made: list[Reindexing] = []

    def make(**settings: Any) -> Reindexing:
        made.append(Reindexing(killable_services, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()
