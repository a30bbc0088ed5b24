"""A lookup while a part is down, moves or is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.errors import CollectionGone, Unavailable
from pipeline.relevance import Level
from tests.fakes import HashEmbedder
from tests.fakes_lookup import World, ask


def test_encoder_down_leaves_names_and_words(world):
    world.embedder = None
    exact = ask(world, "PAY-4031")
    assert (exact.relevance_level, exact.degraded) == (Level.PRECISE, ("encoder",))
    words = ask(world, "refund failed original charge older ninety days")
    assert (words.primary.key, words.relevance_level) == ("pay/refunds", Level.REFERENCE)
    assert "semantic encoding unavailable" in words.message


def test_milvus_down_leaves_names(world):
    world.vectors.down = True
    exact = ask(world, "PAY-4031")
    assert (exact.primary.key, exact.relevance_level, exact.degraded) == ("pay/refunds", Level.PRECISE, ("vectors",))
    other = ask(world, "how do I water a bonsai")
    assert other.found is False
    assert "does not mean that it is not there" in other.completeness_hint


def test_milvus_that_is_down_is_left_alone_for_a_moment(world):
    world.vectors.down = True
    ask(world, "PAY-4031")
    world.vectors.calls.clear()
    assert ask(world, "PAY-4031").degraded == ("vectors",)
    assert world.vectors.calls == []


def test_named_in_part_is_reference_while_degraded(world):
    world.vectors.down = True
    assert ask(world, "PAY-4031 with a refund of last year").relevance_level is Level.REFERENCE


def test_no_lexical_leg_is_said_and_caps_the_level(world):
    world.vectors._lexical = False
    answer = ask(world, "refund failed original charge older than ninety days manual payout")
    assert (answer.relevance_level, answer.degraded) == (Level.REFERENCE, ("lexical",))


def test_collection_being_rebuilt_is_said(world):
    world.ledger.generations[-1] = replace(world.ledger.generations[-1], emptied_at=datetime.now(UTC))
    assert ask(world, "refund failed").degraded == ("rebuilding",)


def test_postgresql_down_is_unavailable(world):
    ask(world, "warm up")
    world.ledger.down = True
    with pytest.raises(Unavailable) as raised:
        ask(world, "PAY-4031")
    assert (raised.value.status, raised.value.part) == (503, "postgresql")


def test_no_generation_is_unavailable():
    world = World()
    world.ledger.generations.clear()
    with pytest.raises(Unavailable, match="no generation serves yet"):
        ask(world, "x")


def test_swap_in_mid_request_restarts_once_with_the_new_generation(world):
    ask(world, "warm up")
    old = world.ledger.generations[-1]
    new = world.generate()
    for number, stored in list(world.ledger.documents.items()):
        world._embed(number, stored.live)
    world.vectors.drop(old.collection)
    answer = ask(world, "refund failed original charge older than ninety days manual payout")
    assert (answer.primary.key, answer.degraded) == ("pay/refunds", None)
    assert world.invocations[-1].generation == new.id


def test_collection_lost_for_good_leaves_names(world):
    ask(world, "warm up")
    world.vectors.wipe()
    answer = ask(world, "PAY-4031")
    assert (answer.relevance_level, answer.degraded) == (Level.PRECISE, ("vectors",))
    with pytest.raises(CollectionGone):
        world.vectors.count("c1")


def test_vector_of_the_serving_space_only(world):
    other = HashEmbedder(dimension=512, weights="other")
    world.embedder = other
    world.generate(space=other.space)
    for number, stored in list(world.ledger.documents.items()):
        world._embed(number, stored.live)
    ask(world, "PAY-4031")
    assert world.invocations[-1].generation == 2
    assert world.invocations[-1].retrieval_details["degraded"] == []
