"""In the bundled encoder's space every cosine is high: only a map can tell an answer from the nearest stranger."""

from __future__ import annotations

import pytest

from pipeline.answers import LookupRequest
from pipeline.lexicon import Lexicon
from pipeline.ports import Hit, LegResults
from pipeline.relevance import IdentityCalibration, similarity, squared_l2
from pipeline.serving import ServingWatch
from tests.fakes_lookup import World

# Of unrelated questions to multilingual-e5-small: 0.79 … 0.88, as near as right answers of other models.
CROWD = (0.862, 0.861, 0.86, 0.859, 0.858, 0.857)


@pytest.fixture
def world() -> World:
    made = World()
    for number in range(len(CROWD)):
        made.put(f"d{number}", f"Text number {number} about gardens and lamps.", title=f"T{number}")
    return made


def crowd() -> LegResults:
    hits = [
        Hit(
            key=f"{n}.1.0", document=n, version=1, ordinal=0, domain="default", hash=str(n), start=0, end=40,
            headings=(), dense=cosine,
        )
        for n, cosine in enumerate(CROWD, start=1)
    ]  # fmt: skip
    return LegResults(dense=tuple(hits), lexical=())


def test_cosines_that_crowd_are_no_answer(world, monkeypatch):
    assert similarity(squared_l2(CROWD[0])) >= 0.75  # the raw threshold would call it highly relevant
    monkeypatch.setattr(world.vectors, "search", lambda *_: crowd())
    answer = world.lookups.lookup(LookupRequest(query="how is a cheese ripened"))
    assert (answer.found, answer.relevance_level) == (False, None)


def test_a_generation_goes_by_its_own_map(world):
    world.ledger.calibration = {"kind": "identity"}
    watch = ServingWatch(world.ledger, Lexicon(world.ledger, "default"), "default")
    assert isinstance(watch.current().calibration, IdentityCalibration)
