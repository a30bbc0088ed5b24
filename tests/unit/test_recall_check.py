"""When a recall check holds a swap. The figures are those of ``python -m ops.bench.self_retrieval``."""

from __future__ import annotations

import pytest

from pipeline.recall_check import ENOUGH, Probe, RecallCheck, check_recall
from pipeline.settings import Settings
from tests.fakes_lookup import World

LEAST = Settings().min_self_retrieval


def check(own: float, serving: float | None, probes: int = 64) -> RecallCheck:
    return RecallCheck(probes=probes, self_retrieval=own, serving_self_retrieval=serving, overlap=None)


@pytest.mark.parametrize(
    ("own", "serving"),
    [
        pytest.param(0.89, 0.89, id="256 dimensions, English runbooks"),
        pytest.param(0.95, 0.98, id="256 dimensions, Chinese glossary"),
        pytest.param(0.95, 1.00, id="256 dimensions, Chinese manual"),
        pytest.param(0.91, 0.89, id="English-Portuguese weights, English runbooks"),
        pytest.param(0.45, 0.50, id="a corpus whose titles say little"),
        pytest.param(0.98, 0.25, id="away from a model that does not know the language"),
    ],
)
def test_what_finds_about_as_much_as_before_may_serve(own, serving):
    assert check(own, serving).verdict(LEAST) is None


def test_a_model_that_does_not_know_the_language_is_held():
    reason = check(0.25, 0.98).verdict(LEAST)
    assert "0.25 of 64" in reason and "0.98" in reason and "by hand" in reason


def test_a_model_that_knows_little_of_the_language_is_held_too():
    assert check(0.65, 1.00).verdict(LEAST) is not None


def test_without_a_serving_figure_the_share_is_absolute():
    assert check(LEAST, None).verdict(LEAST) is None
    assert check(LEAST - 0.01, None).verdict(LEAST) is not None


def test_an_empty_corpus_holds_nothing():
    assert check(0.0, None, probes=0).verdict(LEAST) is None


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    for i in range(30):
        made.put(f"d{i}", f"word{i} and some of what word{i} means", title=f"word{i}")
    return made


def checked(world: World, answers: list[bool]) -> RecallCheck:
    generation = world.ledger.generations[-1]
    probes = [Probe(tenant="default", kind="article", document=i + 1, text=f"word{i}") for i in range(30)]
    asked = iter(answers)
    return check_recall(probes, world.vectors, generation, generation, lambda _: world.embedder, lambda: next(asked))


def test_every_probe_is_run_while_there_is_time(world):
    found = checked(world, [True] * 30)
    assert (found.probes, found.overlap) == (30, pytest.approx(1.0))
    assert found.self_retrieval == found.serving_self_retrieval >= 0.9


def test_a_check_that_runs_out_of_time_stands_on_the_probes_it_ran(world):
    assert checked(world, [True] * 25 + [False] * 5).probes == 25


def test_a_check_without_time_still_runs_enough_probes(world):
    assert checked(world, [False] * 30).probes == ENOUGH == 20
