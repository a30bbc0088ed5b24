"""A lookup in a session: stopped before the search, replayed, chosen and marked; on a corpus in memory."""

from __future__ import annotations

import pytest

from pipeline.action_memory import DomainLimit, Session
from pipeline.answers import LookupRequest
from pipeline.errors import InfrastructureDown, InvalidInput
from pipeline.lookup import LookupLimits
from pipeline.relevance import Level
from pipeline.repeats import DEFAULT_RULE
from pipeline.session_memory import SessionMemory
from tests.fakes_lookup import World
from tests.fakes_memory import FakeActionMemory

REFUNDS = "Refund failed with code PAY-4031: the original charge is older than ninety days. Use a manual payout."


class Desk:
    """One agent's session on a small corpus."""

    def __init__(self, limit: DomainLimit = DomainLimit.REPEAT) -> None:
        self.memory = FakeActionMemory()
        self.world = World(memory=SessionMemory(self.memory, limit), limits=LookupLimits(identity=True))
        self.put("pay/refunds", REFUNDS, title="Refunds that fail", domain="payments", keywords=["PAY-4031"])
        self.put("pay/disputes", "Disputes are answered.", title="Disputes", domain="payments", keywords=["PAY-5000"])
        self.put("infra/pool", "连接池配置", title="数据库连接池", domain="infrastructure", keywords=["连接池"])

    def put(self, key, body, **rest):
        return self.world.put(key, body, **rest)

    def ask(self, query: str, session_id: str | None = "s", **rest):
        return self.world.lookups.lookup(LookupRequest(query=query, session_id=session_id, **rest))

    @property
    def searches(self) -> int:
        return self.world.ledger.calls.count("excerpts")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def hard() -> Desk:
    return Desk(DomainLimit.HARD)


def test_a_repeat_of_an_answered_question_is_stopped_without_a_search(desk):
    first = desk.ask("PAY-4031")
    assert (first.relevance_level, first.primary.key) == (Level.PRECISE, "pay/refunds")
    searches = desk.searches
    again = desk.ask(" pay-4031 ")
    assert (again.relevance_level, again.primary, again.found) == (Level.DEDUPED, None, True)
    assert [(d.key, d.title, d.reason) for d in again.deduped] == [
        ("pay/refunds", "Refunds that fail", "domain_retrieved")
    ]
    assert again.retrieved_domains_this_session[0] == "payments"
    assert again.action_memory == "ok"
    assert desk.searches == searches
    row = desk.world.invocations[-1]
    assert (row.relevance_level, row.dedup_reason) == (Level.DEDUPED, "domain_retrieved")


def test_another_question_in_the_same_domain_is_searched(desk):
    desk.ask("PAY-4031")
    other = desk.ask("PAY-5000")
    assert other.primary.key == "pay/disputes"


def test_how_near_unrelated_questions_are_is_the_serving_generations_own(desk, monkeypatch):
    rules = []
    monkeypatch.setattr("pipeline.session_memory.find_repeat", lambda *given: rules.append(given[-1].unrelated))
    desk.ask("PAY-4031")
    desk.ask("PAY-4031 again")
    model = {"kind": "logistic", "features": [], "mean": [], "scale": [], "weights": [], "bias": 0.0}
    desk.world.ledger.calibration = {**model, "unrelated": 0.31}
    desk.world.lookups = desk.world.lookup_of("default")
    desk.ask("PAY-4031 once more")
    assert rules == [DEFAULT_RULE.unrelated, 0.31]


def test_a_missing_aspect_and_a_refetch_pass_the_domain_limit(desk):
    desk.ask("PAY-4031")
    assert desk.ask("PAY-4031", missing_aspect="deadline").deduped[0].reason == "doc_retrieved"
    again = desk.ask("PAY-4031", refetch=("pay/refunds",))
    assert again.primary.key == "pay/refunds"
    assert "ninety days" in again.primary.content


def test_a_changed_document_is_worth_another_search(desk):
    desk.ask("PAY-4031")
    desk.put(
        "pay/refunds",
        REFUNDS + " Since May: sixty.",
        title="Refunds that fail",
        domain="payments",
        keywords=["PAY-4031"],
    )
    desk.world.settle()
    answer = desk.ask("PAY-4031")
    assert answer.primary.key == "pay/refunds"
    assert answer.primary.citation.version == 2


def test_sessions_tenants_and_questions_without_a_session_are_apart(desk):
    desk.ask("PAY-4031")
    assert desk.ask("PAY-4031", session_id="another").primary is not None
    for _ in range(2):
        answer = desk.ask("PAY-4031", session_id=None)
        assert (answer.primary.key, answer.action_memory) == ("pay/refunds", "off")
    other = desk.world.lookup_of("other")
    assert other.lookup(LookupRequest(query="PAY-4031", session_id="s")).found is False
    assert desk.memory.is_doc_retrieved(Session(tenant="default", session_id="s"), "pay/refunds")
    assert not desk.memory.is_doc_retrieved(Session(tenant="other", session_id="s"), "pay/refunds")


def test_off_leaves_the_document_level_only():
    desk = Desk(DomainLimit.OFF)
    desk.ask("PAY-4031")
    assert desk.ask("PAY-4031").deduped[0].reason == "doc_retrieved"


def test_hard_closes_an_answered_domain(hard):
    hard.ask("PAY-4031")
    searches = hard.searches
    named = hard.ask("PAY-5000")  # L0 names one domain only
    given = hard.ask("anything at all", domain="payments")
    for answer in (named, given):
        assert answer.relevance_level is Level.DEDUPED
        assert [d.reason for d in answer.deduped][:1] == ["domain_retrieved"]
    assert hard.searches == searches
    assert hard.ask("连接池").primary.key == "infra/pool"
    assert hard.ask("PAY-5000", missing_aspect="the deadline").primary.key == "pay/disputes"


def test_a_replay_gives_the_same_answer_and_no_second_row(desk):
    first = desk.ask("PAY-4031", request_id="r")
    rows = len(desk.world.invocations)
    again = desk.ask("PAY-4031", request_id="r")
    assert again == first
    assert len(desk.world.invocations) == rows
    assert desk.ask("PAY-5000", request_id="r").primary.key == "pay/disputes"


def test_an_answer_lost_on_the_way_is_not_deduped(desk, monkeypatch):
    monkeypatch.setattr(
        desk.memory, "finish", lambda session, begun, answer: FakeActionMemory.finish(desk.memory, session, begun, None)
    )
    first = desk.ask("PAY-4031", request_id="r")
    monkeypatch.undo()
    again = desk.ask("PAY-4031", request_id="r")
    assert (again.primary, again.supplement) == (first.primary, first.supplement)


def test_a_failed_lookup_gives_its_request_up(desk):
    desk.ask("连接池")
    desk.world.ledger.down = True
    with pytest.raises(InfrastructureDown):
        desk.ask("PAY-4031", request_id="r")
    desk.world.ledger.down = False
    assert desk.ask("PAY-4031", request_id="r").primary.key == "pay/refunds"


def test_memory_that_is_down_flags_the_answer(desk):
    desk.memory.down = True
    for _ in range(2):
        answer = desk.ask("PAY-4031", request_id="r")
        assert (answer.primary.key, answer.action_memory) == ("pay/refunds", "unavailable")


def test_the_second_empty_answer_says_stop(desk):
    first = desk.ask("bonsai watering")
    second = desk.ask("orchid pruning")
    assert (first.found, second.found) == (False, False)
    assert "stop searching" not in first.completeness_hint
    assert "stop searching" in second.completeness_hint


def test_an_endless_session_id_is_an_error(desk):
    with pytest.raises(InvalidInput):
        desk.ask("PAY-4031", session_id="x" * 257)
