"""The pure part of action memory, and the contract on the fake."""

from __future__ import annotations

import pytest

from pipeline.action_memory import Bounds, Session, Status, request_token, without_memory
from pipeline.adapters.action_memory import Gate
from pipeline.errors import InfrastructureDown, InvalidInput
from tests.contracts_memory import SESSION, ActionMemoryContract, ask, keys, offer, selection
from tests.fakes_memory import FakeActionMemory


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestFake(ActionMemoryContract):
    @pytest.fixture
    def memory(self):
        return FakeActionMemory()


def test_the_fake_forgets_a_day_after_the_last_lookup():
    clock = Clock()
    memory = FakeActionMemory(Bounds(ttl=100), clock)
    ask(memory, offer("a"))
    clock.now = 99
    ask(memory, offer("b"))
    clock.now = 198
    assert memory.is_doc_retrieved(SESSION, "a")
    clock.now = 199
    assert memory.view(SESSION) is None


def test_the_fake_can_be_down():
    memory = FakeActionMemory()
    memory.down = True
    begun = memory.begin(SESSION, "r")
    assert begun.status is Status.UNAVAILABLE
    assert memory.mark_retrieved(SESSION, selection(offer("a")), begun).status is Status.UNAVAILABLE
    with pytest.raises(InfrastructureDown):
        memory.view(SESSION)


@pytest.mark.parametrize("field", ["tenant", "session_id"])
@pytest.mark.parametrize("value", ["", "x" * 257])
def test_an_empty_or_endless_scope_is_an_error(field, value):
    with pytest.raises(InvalidInput) as error:
        Session(**{"tenant": "t", "session_id": "s", field: value})
    assert error.value.fields["field"] == field


def test_without_memory_the_best_are_handed_out_and_the_answer_says_so():
    marked = without_memory(selection(offer("a", (2,), neighbours=(1,)), offer("b"), offer("c")), Status.OFF)
    assert marked.status is Status.OFF
    assert keys(marked) == ["a", "b"]
    assert [h.passages for h in marked.handed] == [(1, 2), None]


def test_a_request_token_names_the_id_and_what_was_asked():
    asked = {"query": "q", "refetch": ("a", "b"), "domain": None}
    assert request_token(None, asked) == ""
    assert request_token("", asked) == ""
    assert request_token("r", asked) == request_token("r", dict(reversed(asked.items())))
    others = [request_token("r2", asked), request_token("r", {**asked, "query": "p"})]
    assert len({request_token("r", asked), *others}) == 3


def test_the_gate_lets_one_caller_a_pause_through_while_the_store_is_down():
    clock = Clock()
    gate = Gate(pause=1.0, clock=clock)
    assert [gate.admits() for _ in range(3)] == [True] * 3
    assert gate.failed()
    assert not gate.failed()
    assert [gate.admits() for _ in range(3)] == [False] * 3
    clock.now = 1.0
    assert [gate.admits() for _ in range(3)] == [True, False, False]
    clock.now = 1.5
    gate.failed()
    clock.now = 2.4
    assert not gate.admits()
    clock.now = 2.5
    assert gate.admits()
    gate.succeeded()
    assert [gate.admits() for _ in range(3)] == [True] * 3
