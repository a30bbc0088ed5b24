"""The executor's prompt: its sentences are the original's, each of them is what the tool does, and no map is in it."""

from __future__ import annotations

import inspect

import pytest

from pipeline import hints
from pipeline.action_memory import DomainLimit
from pipeline.answers import LookupAnswer, LookupRequest
from pipeline.prompts import SERVED
from pipeline.prompts_executor import NO_BLAME, WHEN_TO_CALL, executor_prompt
from pipeline.relevance import Level
from pipeline.session_memory import SessionMemory
from tests.fakes_lookup import World
from tests.fakes_memory import FakeActionMemory

POOL = "The connection pool of the shop holds forty connections. HikariCP closes idle ones after ten minutes."
TIMEOUT = "ERR_TIMEOUT means that the gateway waited thirty seconds for the upstream."
NAMES = tuple(LookupAnswer.__dataclass_fields__)


OTHERS = {
    "desk": "Desks are booked on the second floor, by the window or near the kitchen.",
    "bike": "Bicycles stand in the cellar; the key hangs at the reception.",
    "meal": "Lunch is cooked at noon, soup and bread are always left over.",
    "post": "Parcels arrive before ten and wait in the grey cupboard.",
    "lamp": "Broken lamps are replaced by the caretaker within a week.",
    "gym": "The gym opens at six and closes when the building does.",
}


def made_world(limit: DomainLimit = DomainLimit.REPEAT) -> World:
    made = World(memory=SessionMemory(FakeActionMemory(), limit))
    made.put("pool.md", POOL, title="Connection pool", domain="infrastructure")
    made.put("timeout.md", TIMEOUT, title="Gateway timeouts", domain="infrastructure", keywords=("ERR_TIMEOUT",))
    made.put("leave.md", "Holidays are asked for two weeks ahead.", title="Leave", domain="people")
    for key, body in OTHERS.items():
        made.put(key, body, domain="house")
    return made


@pytest.fixture
def world() -> World:
    return made_world()


def ask(world: World, query: str, **fields) -> LookupAnswer:
    return world.lookups.lookup(LookupRequest(query=query, session_id="s", **fields))


@pytest.mark.parametrize(
    "sentence", ["不查全不会被追责，重复检索才会被惩罚", "需要外部信息时调用工具，但须遵守下方的检索约束"]
)
def test_the_two_sentences_of_the_original_are_verbatim(sentence):
    assert sentence in {NO_BLAME, WHEN_TO_CALL}
    assert executor_prompt("zh").count(sentence) == 1


@pytest.mark.parametrize("language", ["zh", "en"])
def test_four_constraints_in_both_languages_and_served(language):
    text = executor_prompt(language)
    assert [line[0] for line in text.splitlines() if line[1:2] == "."] == ["1", "2", "3", "4"]
    assert SERVED["executor"](language) == text


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_name_in_the_prompt_is_one_of_the_tool(language):
    text = executor_prompt(language)
    for name in ("retrieved_domains_this_session", "relevance_level", "completeness_hint"):
        assert name in text
        assert name in NAMES
    for name in ("missing_aspect", "refetch"):
        assert name in text
        assert name in LookupRequest.__dataclass_fields__
    for level in Level:
        assert level in text


def test_promise_domains_of_the_session_are_in_every_result(world):
    assert ask(world, "ERR_TIMEOUT").retrieved_domains_this_session == ("infrastructure",)
    assert ask(world, "Leave").retrieved_domains_this_session == ("infrastructure", "people")
    assert "infrastructure" in ask(world, "zebra quartz").retrieved_domains_this_session


def test_promise_searching_again_gives_nothing_new(world):
    first, again = ask(world, "ERR_TIMEOUT"), ask(world, "ERR_TIMEOUT")
    assert first.primary is not None
    assert (again.relevance_level, again.primary) == (Level.DEDUPED, None)
    assert [d.key for d in again.deduped] == ["timeout.md"]


def test_promise_a_missing_aspect_passes_where_the_domain_is_closed():
    world = made_world(DomainLimit.HARD)
    ask(world, "ERR_TIMEOUT")
    stopped = ask(world, "Connection pool")
    assert (stopped.relevance_level, stopped.deduped[0].reason) == (Level.DEDUPED, "domain_retrieved")
    more = ask(world, "Connection pool", missing_aspect="how many connections the pool holds")
    assert more.primary is not None
    assert more.primary.key == "pool.md"


def test_promise_refetch_hands_a_document_out_again(world):
    ask(world, "ERR_TIMEOUT")
    again = ask(world, "ERR_TIMEOUT", refetch=("timeout.md",))
    assert again.primary is not None
    assert again.primary.key == "timeout.md"


def test_promise_precise_says_stop(world):
    answer = ask(world, "ERR_TIMEOUT")
    assert answer.relevance_level is Level.PRECISE
    assert answer.completeness_hint == hints.completeness_hint(hints.Outcome(level=Level.PRECISE), "en")


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("level", [*Level, None])
def test_promise_every_level_has_its_own_hint(language, level):
    own = hints.completeness_hint(hints.Outcome(level=level), language)
    others = {hints.completeness_hint(hints.Outcome(level=each), language) for each in (*Level, None) if each != level}
    assert own
    assert own not in others


def test_promise_nothing_found_is_a_finding_and_the_second_time_says_stop(world):
    first, second = ask(world, "zebra quartz", domain="people"), ask(world, "violin bow", domain="people")
    assert not first.found
    assert first.message
    assert not second.found
    assert second.completeness_hint != first.completeness_hint


@pytest.mark.parametrize("language", ["zh", "en"])
def test_neither_the_prompt_nor_an_answer_holds_the_knowledge_map(world, language):
    text = executor_prompt(language)
    for word in ("{knowledge_map}", "knowledge_map", "when_to_retrieve", "covers:", "domains:"):
        assert word not in text
    # What another domain holds is the planner's business: an answer names only what this session was given.
    answer = ask(world, "ERR_TIMEOUT")
    assert "people" not in repr(answer)
    assert "Leave" not in repr(answer)
    assert "knowledge_map" not in inspect.getsource(LookupAnswer)
