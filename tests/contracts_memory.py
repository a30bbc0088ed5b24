"""What every action memory must do, fake or real: subclass and give the fixture ``memory``."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pipeline.action_memory import (
    ActionMemory,
    DedupReason,
    DomainLimit,
    Marked,
    Offer,
    Question,
    Selection,
    Session,
    Status,
    answered_questions,
    request_token,
    stopped_domain,
)

SESSION = Session(tenant="acme", session_id="s-1")
VECTOR = np.array([0.6, 0.8, 0.0, 0.0], np.float32)


def offer(key: str, passages=None, *, version: int = 1, domain: str = "infrastructure", neighbours=()) -> Offer:
    return Offer(
        key=key, title=f"About {key}", domain=domain, version=version, passages=passages, neighbours=neighbours
    )


def selection(*ranked: Offer, query: str = "how?", level: str = "REFERENCE", **fields) -> Selection:
    domain = ranked[0].domain if ranked else ""
    question = Question(query=query, space="space", vector=VECTOR, level=level, domain=domain, documents=("a",))
    return Selection(ranked=ranked, question=question, **{"limit": 2, **fields})


def ask(memory: ActionMemory, *ranked: Offer, session: Session = SESSION, request: str = "", **fields) -> Marked:
    """One lookup from begin to mark; its answer gets lost."""
    begun = memory.begin(session, request)
    assert begun.status is Status.OK
    marked = memory.mark_retrieved(session, selection(*ranked, **fields), begun)
    assert marked.status is Status.OK
    memory.finish(session, begun, None)
    return marked


def keys(marked: Marked) -> list[str]:
    return [h.key for h in marked.handed]


class ActionMemoryContract:
    """The promises of ``pipeline.action_memory``."""

    @pytest.fixture
    def memory(self) -> ActionMemory:
        raise NotImplementedError

    # Exactly what is returned is marked.

    def test_what_is_returned_is_marked_and_nothing_else(self, memory):
        marked = ask(memory, offer("a"), offer("b"), offer("c"), limit=2)
        assert keys(marked) == ["a", "b"]
        assert marked.reason is None
        records = memory.records()
        assert records.is_doc_retrieved(SESSION, "a")
        assert records.is_doc_retrieved(SESSION, "b")
        assert not records.is_doc_retrieved(SESSION, "c")

    def test_a_best_that_was_handed_out_makes_the_whole_answer_deduped(self, memory):
        ask(memory, offer("a"), offer("b"))
        again = ask(memory, offer("a"), offer("b"), offer("c"))
        assert again.handed == ()
        assert again.reason is DedupReason.DOC_RETRIEVED
        assert [(w.key, w.title, w.domain, w.reason) for w in again.withheld] == [
            ("a", "About a", "infrastructure", DedupReason.DOC_RETRIEVED),
            ("b", "About b", "infrastructure", DedupReason.DOC_RETRIEVED),
        ]
        assert not memory.records().is_doc_retrieved(SESSION, "c")

    def test_a_new_best_comes_without_the_supplement_that_was_seen(self, memory):
        ask(memory, offer("a"))
        marked = ask(memory, offer("b"), offer("a"), offer("c"))
        assert keys(marked) == ["b", "c"]
        assert [w.key for w in marked.withheld] == ["a"]

    def test_passages_not_shown_yet_are_handed_out(self, memory):
        assert ask(memory, offer("a", (1, 2))).handed[0].passages == (1, 2)
        assert ask(memory, offer("a", (2, 3))).handed[0].passages == (3,)
        assert ask(memory, offer("a", (1, 2, 3))).reason is DedupReason.DOC_RETRIEVED
        assert memory.seen(SESSION)[0].passages == (1, 2, 3)

    def test_neighbours_are_shown_along_but_are_no_reason(self, memory):
        assert ask(memory, offer("a", (2,), neighbours=(1, 3))).handed[0].passages == (1, 2, 3)
        assert ask(memory, offer("a", (3,), neighbours=(2, 4))).handed == ()
        assert ask(memory, offer("a", (5,), neighbours=(3, 4))).handed[0].passages == (4, 5)

    def test_a_whole_text_leaves_nothing_over(self, memory):
        assert ask(memory, offer("a")).handed[0].passages is None
        assert ask(memory, offer("a", (7,))).reason is DedupReason.DOC_RETRIEVED

    def test_a_document_shown_without_a_passage_is_handed_out_once(self, memory):
        assert ask(memory, offer("a", ())).handed[0].passages == ()
        assert ask(memory, offer("a", ())).reason is DedupReason.DOC_RETRIEVED
        assert ask(memory, offer("a", (4,))).handed[0].passages == (4,)

    def test_a_new_version_counts_as_new_and_an_older_one_does_not(self, memory):
        ask(memory, offer("a", version=2))
        assert ask(memory, offer("a", version=1)).handed == ()
        assert keys(ask(memory, offer("a", version=3))) == ["a"]
        records = memory.records()
        assert records.is_doc_retrieved(SESSION, "a", 3)
        assert not records.is_doc_retrieved(SESSION, "a", 4)

    # Who it belongs to.

    @pytest.mark.parametrize(
        ("tenant", "session_id"),
        [("other", "s-1"), ("acme:s", "1"), ("acme", "s-1:x"), ("acme%3As-1", "x"), ("a{c}", "}")],
    )
    def test_nothing_crosses_a_tenant_or_a_session(self, memory, tenant, session_id):
        other = Session(tenant=tenant, session_id=session_id)
        ask(memory, offer("a"))
        assert memory.records().view(other) is None
        assert keys(ask(memory, offer("a"), session=other)) == ["a"]
        assert memory.records().clear_session(other)
        assert memory.records().is_doc_retrieved(SESSION, "a")

    def test_pairs_that_read_the_same_joined_are_apart(self, memory):
        one, two = Session(tenant="a:b", session_id="c"), Session(tenant="a", session_id="b:c")
        ask(memory, offer("a"), session=one)
        assert keys(ask(memory, offer("a"), session=two)) == ["a"]

    def test_names_of_any_characters_are_kept(self, memory):
        strange = Session(tenant="租户 \n{}", session_id="会话\ud800")
        ask(memory, offer("文档/a:b {c}", domain="域:名"), session=strange)
        assert [d.key for d in memory.seen(strange, "域:名")] == ["文档/a:b {c}"]
        assert memory.records().get_retrieved_domains(strange) == ("域:名",)

    # Domains, questions, empty answers.

    def test_domains_are_told_in_the_order_of_their_first_time(self, memory):
        assert ask(memory, offer("z", domain="infrastructure")).domains == ("infrastructure",)
        ask(memory, offer("b", domain="api"))
        assert ask(memory, offer("c", domain="infrastructure")).domains == ("infrastructure", "api")
        assert memory.records().is_domain_retrieved(SESSION, "api")
        assert not memory.records().is_domain_retrieved(SESSION, "payments")
        assert [d.key for d in memory.seen(SESSION, "infrastructure")] == ["z", "c"]

    def test_questions_come_back_with_vector_level_and_documents(self, memory):
        ask(memory, offer("a"), query="什么是幂等", level="PRECISE")
        (question,) = memory.begin(SESSION).questions
        assert (question.query, question.space, question.level) == ("什么是幂等", "space", "PRECISE")
        assert question.domain == "infrastructure"
        assert question.documents == ("a",)
        assert question.vector.dtype == np.float32
        assert np.abs(question.vector - VECTOR).max() < 1e-3

    def test_a_deduped_answer_is_no_earlier_question(self, memory):
        ask(memory, offer("a"), query="first")
        ask(memory, offer("a"), query="second")
        assert [q.query for q in memory.begin(SESSION).questions] == ["first"]

    def test_the_last_fifty_questions_are_kept(self, memory):
        for number in range(53):
            ask(memory, offer(f"d{number}"), query=f"q{number}")
        assert [q.query for q in memory.begin(SESSION).questions] == [f"q{n}" for n in range(3, 53)]

    def test_only_answered_questions_of_the_domain_and_space_can_be_repeated(self, memory):
        ask(memory, offer("a"), query="reference", level="REFERENCE")
        ask(memory, offer("b"), query="precise", level="PRECISE")
        ask(memory, offer("c", domain="api"), query="high", level="HIGHLY_RELEVANT")
        begun = memory.begin(SESSION)
        assert [q.query for q in answered_questions(begun, "space", None)] == ["high", "precise"]
        assert [q.query for q in answered_questions(begun, "space", "api")] == ["high"]
        assert answered_questions(begun, "another", None) == ()

    def test_the_second_empty_answer_of_a_domain_says_stop(self, memory):
        assert not ask(memory, domain="api").says_stop
        assert not ask(memory, domain="payments").says_stop
        assert not ask(memory).says_stop
        assert ask(memory, domain="api").says_stop
        assert ask(memory).says_stop
        assert dict(memory.records().view(SESSION).empties) == {"api": 2, "payments": 1, "": 2}

    def test_an_empty_answer_while_a_part_is_down_is_not_counted(self, memory):
        ask(memory, domain="api", complete=False)
        assert ask(memory, domain="api").empties == 1

    # The hard domain limit.

    def test_hard_stops_a_further_question_in_an_answered_domain(self, memory):
        assert keys(ask(memory, offer("a"), level="HIGHLY_RELEVANT", hard=True)) == ["a"]
        begun = memory.begin(SESSION)
        assert stopped_domain(DomainLimit.HARD, begun, ["infrastructure"], exempt=False) == "infrastructure"
        assert stopped_domain(DomainLimit.HARD, begun, ["infrastructure"], exempt=True) is None
        assert stopped_domain(DomainLimit.HARD, begun, ["infrastructure", "api"], exempt=False) is None
        assert stopped_domain(DomainLimit.REPEAT, begun, ["infrastructure"], exempt=False) is None
        stopped = ask(memory, offer("b"), offer("a"), hard=True)
        assert stopped.handed == ()
        assert stopped.reason is DedupReason.DOMAIN_RETRIEVED
        assert [(w.key, w.reason) for w in stopped.withheld] == [("a", DedupReason.DOMAIN_RETRIEVED)]
        assert keys(ask(memory, offer("b"))) == ["b"]

    def test_hard_lets_a_domain_pass_that_has_only_given_references(self, memory):
        ask(memory, offer("a"), level="REFERENCE", hard=True)
        assert keys(ask(memory, offer("b"), hard=True)) == ["b"]

    # Once more, on purpose.

    def test_refetch_hands_a_document_out_once_more(self, memory):
        ask(memory, offer("a"), offer("b"))
        again = ask(memory, offer("a"), offer("b"), refetch=frozenset({"b"}))
        assert keys(again) == ["b"]
        assert again.handed[0].refetched
        assert again.reason is None
        assert {d.key: d.refetched for d in memory.seen(SESSION)} == {"a": 0, "b": 1}
        assert ask(memory, offer("a"), offer("b")).handed == ()

    def test_refetch_of_passages_brings_all_of_them(self, memory):
        ask(memory, offer("a", (1, 2)))
        assert ask(memory, offer("a", (1, 2), neighbours=(3,)), refetch=frozenset({"a"})).handed[0].passages == (
            1,
            2,
            3,
        )

    # The same request again.

    def test_a_stored_answer_is_replayed(self, memory):
        token = request_token("r-1", {"query": "how?"})
        begun = memory.begin(SESSION, token)
        assert begun.answer is None
        memory.mark_retrieved(SESSION, selection(offer("a")), begun)
        assert memory.finish(SESSION, begun, '{"答": 1}') is Status.OK
        assert memory.begin(SESSION, token).answer == '{"答": 1}'
        assert memory.begin(SESSION, request_token("r-1", {"query": "another"})).answer is None

    def test_an_answer_lost_before_it_was_stored_is_not_deduped(self, memory):
        first = ask(memory, offer("a", (1, 2)), offer("b"), request="r", level="PRECISE", hard=True)
        ask(memory, offer("c"))
        begun = memory.begin(SESSION, "r")
        assert begun.retried
        assert stopped_domain(DomainLimit.HARD, begun, ["infrastructure"], exempt=False) is None
        assert answered_questions(begun, "space", None) == ()
        again = memory.mark_retrieved(
            SESSION, selection(offer("a", (1, 2)), offer("b"), level="PRECISE", hard=True), begun
        )
        assert again.handed == first.handed
        assert again.reason is None
        assert len(memory.records().view(SESSION).questions) == 2

    def test_an_empty_answer_that_was_lost_is_counted_once(self, memory):
        assert ask(memory, request="r", domain="api").empties == 1
        assert ask(memory, request="r", domain="api").empties == 1
        assert ask(memory, request="r2", domain="api").empties == 2

    def test_the_same_request_at_once_waits_for_the_answer(self, memory):
        begun = memory.begin(SESSION, "r")
        answers: list[str | None] = []
        waiting = [threading.Thread(target=lambda: answers.append(memory.begin(SESSION, "r").answer)) for _ in range(3)]
        for thread in waiting:
            thread.start()
        memory.finish(SESSION, begun, "the answer")
        for thread in waiting:
            thread.join()
        assert answers == ["the answer"] * 3

    def test_a_request_that_was_given_up_runs_again(self, memory):
        memory.finish(SESSION, memory.begin(SESSION, "r"), None)
        begun = memory.begin(SESSION, "r")
        assert begun.answer is None
        assert begun.owner
        assert not begun.retried

    def test_a_late_owner_does_not_store_over_a_cleared_session(self, memory):
        begun = memory.begin(SESSION, "r")
        assert memory.records().clear_session(SESSION)
        memory.finish(SESSION, begun, "late")
        assert memory.begin(SESSION, "r").answer is None

    # Forgetting.

    def test_clearing_forgets_documents_questions_and_answers(self, memory):
        begun = memory.begin(SESSION, "r")
        memory.mark_retrieved(SESSION, selection(offer("a"), level="PRECISE"), begun)
        memory.finish(SESSION, begun, "answer")
        assert memory.records().clear_session(SESSION)
        assert not memory.records().clear_session(SESSION)
        assert memory.records().view(SESSION) is None
        after = memory.begin(SESSION, "r")
        assert (after.answer, after.questions, after.answered) == (None, (), frozenset())
        assert keys(ask(memory, offer("a"))) == ["a"]

    # The four scenarios of the original design.

    def test_scenario_1_one_good_answer_is_enough(self, memory):
        marked = ask(memory, offer("连接池配置"), level="HIGHLY_RELEVANT", query="数据库连接池配置")
        assert keys(marked) == ["连接池配置"]
        assert marked.domains == ("infrastructure",)

    def test_scenario_2_other_words_for_the_same_document_are_stopped(self, memory):
        ask(memory, offer("连接池配置"), level="HIGHLY_RELEVANT", query="数据库连接池")
        second = ask(memory, offer("连接池配置"), query="HikariCP 参数")
        assert second.reason is DedupReason.DOC_RETRIEVED
        assert second.domains == ("infrastructure",)
        third = ask(memory, offer("连接池配置"), offer("连接池耗尽"), query="连接池耗尽")
        assert third.reason is DedupReason.DOC_RETRIEVED

    def test_scenario_3_a_precise_answer_closes_its_domain_under_hard(self, memory):
        assert keys(ask(memory, offer("网关超时"), level="PRECISE", query="ERR_TIMEOUT", hard=True)) == ["网关超时"]
        assert ask(memory, offer("another"), query="ERR_TIMEOUT 重试", hard=True).reason is DedupReason.DOMAIN_RETRIEVED

    def test_scenario_4_a_reference_leaves_the_targeted_supplement_open(self, memory):
        ask(memory, offer("故障排查", domain="troubleshooting"), level="REFERENCE", hard=True)
        more = ask(memory, offer("日志分析", domain="troubleshooting"), query="日志分析步骤", hard=True)
        assert keys(more) == ["日志分析"]
