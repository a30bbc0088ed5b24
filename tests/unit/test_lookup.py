"""A lookup as a whole, over a corpus in memory whose parts can break."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import replace

import pytest

from pipeline.answers import LookupRequest
from pipeline.errors import InvalidInput
from pipeline.lexicon import PAGE, Lexicon
from pipeline.lookup import LookupLimits
from pipeline.query_vectors import QueryVectors
from pipeline.relevance import Level, Thresholds
from tests.fakes import HashEmbedder
from tests.fakes_lookup import Stored, World, ask
from tests.unit.conftest import FILLER


def test_exact_keyword_is_precise_and_cited(world):
    answer = ask(world, "PAY-4031 是什么？")
    assert (answer.found, answer.relevance_level) == (True, Level.PRECISE)
    assert answer.completeness_hint == "知识库中不存在比上述结果更精准的文档"
    assert answer.primary.key == "pay/refunds"
    assert "ninety days" in answer.primary.content
    assert answer.primary.citation.version == 1
    assert answer.primary.citation.lines[0] == 1
    assert (answer.degraded, answer.action_memory) == (None, "off")


def test_near_question_is_highly_relevant(world):
    answer = ask(world, "Refund failed with code: the original charge is older than ninety days. Use a manual payout")
    assert (answer.relevance_level, answer.primary.key) == (Level.HIGHLY_RELEVANT, "pay/refunds")


def test_nothing_here_names_the_nearest_and_counts_what_was_below(world):
    answer = ask(world, "bonsai watering winter certificate")
    assert (answer.found, answer.relevance_level, answer.primary) == (False, None, None)
    assert "“Certificate Renewal” (domain: other)" in answer.message
    assert answer.not_shown.below_floor > 0


def test_no_score_and_no_knowledge_map_in_the_answer(world):
    fields = json.dumps(dataclasses.asdict(ask(world, "refund failed code")), default=str)
    details = world.invocations[-1].retrieval_details
    for score in (details["l1_top_score"], details["l1_top_similarity"], details["candidates"][0]["relevance"]):
        assert str(score) not in fields
    assert "score" not in fields and "available_knowledge_domains" not in fields


def test_one_invocation_with_the_fields_of_the_original(world):
    answer = ask(world, "数据库连接池", session_id="s")
    (row,) = world.invocations
    assert (row.id, row.tenant, row.session_id, row.tool_name) == (
        answer.invocation_id, "default", "s", "lookup_knowledge",
    )  # fmt: skip
    assert (row.relevance_level, row.dedup_reason, row.generation) == ("PRECISE", None, 1)
    details = row.retrieval_details
    assert details["l0_titles"] == ["数据库连接池"]
    assert details["l1_top_score"] == min(details["l1_scores"])
    assert details["l1_top_similarity"] == pytest.approx(1 - details["l1_top_score"] / 2, abs=1e-3)
    assert (details["relevance_level"], details["completeness_hint"]) == ("PRECISE", answer.completeness_hint)
    assert (details["retrieved_domains"], details["dedup_reason"]) == ([], None)
    assert details["stages"]["handed_out"] == 1
    assert set(row.latency_ms) >= {"l0", "encode", "search", "liveness", "memory", "total"}
    json.dumps(details)


def test_keyword_inside_a_wider_question_is_a_pin_at_reference_or_better(world):
    answer = ask(world, "kafka consumer lag while PAY-4031")
    assert answer.primary.key == "pay/refunds"
    assert answer.relevance_level in {Level.REFERENCE, Level.HIGHLY_RELEVANT}


def test_common_word_beside_others_is_no_name():
    world = World(limits=LookupLimits(identity=True))
    for i in range(20):
        world.put(f"d{i}", f"The cluster needs node{i} and cluster care {FILLER[i % 6]}", title=f"Node {i}")
    world.put("glossary/cluster", "Several machines that act as one.", title="Cluster")
    assert ask(world, "cluster").primary.key == "glossary/cluster"
    answer = ask(world, "cluster bonsai watering in winter by moonlight")
    assert answer.found is False
    assert world.invocations[-1].retrieval_details["keywords"] == []


def test_name_that_many_share_names_none(world):
    for i in range(8):
        world.put(f"many/{i}", f"Something {i}", keywords=["XK-77"])
    ask(world, "XK-77")
    assert world.invocations[-1].retrieval_details["keywords"] == []


def test_two_named_documents_are_not_precise(world):
    world.put("pay/other", "Also about it.", title="Other", domain="payments", keywords=["PAY-4031"])
    answer = ask(world, "PAY-4031")
    assert answer.relevance_level is not Level.PRECISE
    assert {answer.primary.key, *(s.key for s in answer.supplement)} == {"pay/refunds", "pay/other"}


def test_copy_under_another_key_is_no_supplement(world):
    stored = world.ledger.documents[7]
    world.put("pay/copy", stored.texts[1][1], title="Refunds that fail", domain="payments", keywords=["PAY-4031"])
    assert ask(world, "PAY-4031").supplement == ()


def test_other_tenant_sees_nothing(world):
    world.put("secret", "PAY-4031 secret text", title="Secret", tenant="other", keywords=["SEC-9"])
    assert ask(world, "SEC-9").found is False
    theirs = world.lookup_of("other").lookup(LookupRequest(query="SEC-9"))
    assert theirs.primary.key == "secret"
    assert theirs.not_shown.below_floor == 0
    with pytest.raises(InvalidInput):
        world.lookup_of("")


def test_domain_narrows_both_legs_and_l0(world):
    assert ask(world, "PAY-4031", domain="infrastructure").found is False
    assert ask(world, "PAY-4031", domain="payments").primary.key == "pay/refunds"


def test_deleted_document_is_never_returned_though_index_and_vectors_still_have_it(world):
    ask(world, "PAY-4031")
    world.change(7, live=None)
    answer = ask(world, "PAY-4031 refund failed")
    assert answer.primary is None or answer.primary.key != "pay/refunds"


def test_previous_version_counts_only_while_acceptable(world):
    world.put("pay/refunds", "Everything is new: refunds work.", title="New refunds", domain="payments")
    question = "original charge older than ninety days"
    world.change(7, previous=None)
    assert all(c["version"] == 2 for c in _candidates(world, question) if c["key"] == "pay/refunds")


def test_flipped_a_moment_ago_still_answers_with_the_text_of_its_own_version(world):
    world.vectors.delete(world.ledger.generations[-1].spec, [])
    stored = world.ledger.documents[7]
    world.ledger.documents[7] = replace(
        stored, texts={**stored.texts, 2: ("New", "Unrelated.")}, live=2, previous=1, keywords=()
    )
    answer = ask(world, "refund failed original charge older than ninety days manual payout")
    assert (answer.primary.key, answer.primary.citation.version) == ("pay/refunds", 1)
    assert "ninety days" in answer.primary.content


def _candidates(world, question):
    ask(world, question)
    return world.invocations[-1].retrieval_details["candidates"]


def test_pending_documents_are_counted_and_said(world):
    world.ledger.pending = 3
    answer = ask(world, "refund failed")
    assert answer.not_shown.pending_in_domain == 3
    assert "3 document(s) are still being made searchable" in answer.message


def test_new_document_is_named_after_the_view_is_read_again(world):
    ask(world, "anything at all")
    world.put("new", "Fresh.", title="Fresh", keywords=["NEW-100"])
    world.settle()
    assert ask(world, "NEW-100").relevance_level is Level.PRECISE


def test_code_in_a_body_finds_its_document(world):
    world.put("err", "If you see ERR_FLUX_7 restart the flux.", title="Flux")
    assert ask(world, "ERR_FLUX_7 什么意思").primary.key == "err"


def test_codes_of_many_bodies_follow_while_titles_answer_already():
    world = World(limits=LookupLimits(identity=True))
    for i in range(PAGE + 20):
        world.ledger.documents[i] = Stored(
            id=i, tenant="default", key=f"k{i}", domain="d", keywords=(), texts={1: (f"Manual {i}", f"see ERR_{i:04}")}, live=1
        )  # fmt: skip
    lexicon = Lexicon(world.ledger, "default")
    lexicon.refresh(1, 1, wait=True)
    last = PAGE + 19
    assert lexicon.match(f"manual {last}").documents == {last}
    deadline = time.monotonic() + 30
    while not lexicon.match(f"ERR_{last:04}").documents and time.monotonic() < deadline:
        time.sleep(0.01)
    assert lexicon.match(f"ERR_{last:04}").documents == {last}
    assert lexicon.match("ERR_0000").documents == {0}


def test_statements_of_one_lookup(world):
    ask(world, "warm up")
    world.ledger.calls.clear()
    ask(world, "refund failed")
    assert world.ledger.calls == ["liveness", "excerpts"]


# The question itself.


@pytest.mark.parametrize("query", ["", "  \n ", "a\0b", "\ud800", "x" * 4001])
def test_bad_questions_are_refused(world, query):
    with pytest.raises(InvalidInput):
        ask(world, query)


@pytest.mark.parametrize("query", ["?", "。。。", "👩‍💻", "的", "what is it"])
def test_questions_without_words_find_nothing_and_break_nothing(world, query):
    assert ask(world, query).degraded is None


def test_question_beyond_the_window_is_encoded_by_its_beginning(world):
    answer = ask(world, "refund failed original charge older than ninety days manual payout " * 30)
    assert (answer.degraded, answer.primary.key) == (None, "pay/refunds")


def test_missing_aspect_takes_part_in_the_search(world):
    assert ask(world, "数据库", missing_aspect="连接池耗尽").primary.key == "infra/pool"


def test_same_question_is_encoded_once():
    embedder = HashEmbedder()
    queries = QueryVectors(lambda _: embedder)
    first = queries.vector(embedder.space, "same")
    assert queries.vector(embedder.space, "same") is first
    assert len(embedder.batches) == 1


def test_oldest_questions_are_forgotten():
    embedder = HashEmbedder()
    queries = QueryVectors(lambda _: embedder, remember=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        queries.vector(embedder.space, text)
    assert len(embedder.batches) == 4


def test_shared_cache_saves_the_encoder():
    kept = {}

    class Cache:
        def get(self, space, text):
            return kept.get((space, text))

        def put(self, text, vector):
            kept[vector.space, text] = vector

    first, second = HashEmbedder(), HashEmbedder()
    QueryVectors(lambda _: first, Cache()).vector(first.space, "q")
    QueryVectors(lambda _: second, Cache()).vector(second.space, "q")
    assert (len(first.batches), len(second.batches)) == (1, 0)


def test_thresholds_are_settings():
    world = World(limits=LookupLimits(identity=True, thresholds=Thresholds(highly_relevant=0.99, reference=0.98)))
    world.put("a", "refund failed original charge", title="Zeta")
    assert ask(world, "refund failed charge now").found is False


def test_named_document_behind_many_better_ones_is_still_a_reference():
    world = World(limits=LookupLimits(identity=True))
    for i in range(12):
        world.put(f"near/{i}", f"bonsai watering winter moonlight {i}", title=f"Garden {i}")
    world.put("far", "Entirely other words stand here.", title="Zephyr")
    ask(world, "bonsai watering winter moonlight zephyr")
    far = next(c for c in world.invocations[-1].retrieval_details["candidates"] if c["key"] == "far")
    assert far["level"] is Level.REFERENCE


def test_named_document_makes_found_when_nothing_else_does():
    limits = LookupLimits(identity=True, thresholds=Thresholds(highly_relevant=0.99, reference=0.98))
    world = World(limits=limits)
    for i in range(12):
        world.put(f"near/{i}", f"bonsai watering winter moonlight {i}", title=f"Garden {i}")
    world.put("far", "Entirely other words stand here.", title="Zephyr")
    answer = ask(world, "bonsai watering winter by the zephyr")
    assert (answer.found, answer.relevance_level, answer.primary.key) == (True, Level.REFERENCE, "far")


def a_world_whose_first_is_no_answer(monkeypatch) -> World:
    """Of two candidates the first is judged 0.1 and the second 0.8."""
    chances = iter([0.1, 0.8])
    monkeypatch.setattr("pipeline.relevance.IdentityCalibration.relevance", lambda *_: next(chances))
    return World(limits=LookupLimits(identity=True, thresholds=Thresholds(highly_relevant=0.9, reference=0.4)))


def test_no_second_chance_behind_a_best_that_is_no_answer(monkeypatch):
    world = a_world_whose_first_is_no_answer(monkeypatch)
    world.put("a", "bonsai watering winter", title="A1")
    world.put("b", "bonsai watering moonlight", title="B1")
    answer = ask(world, "bonsai watering")
    assert [c["relevance"] for c in world.invocations[-1].retrieval_details["candidates"]] == [0.1, 0.8]
    assert (answer.found, answer.primary) == (False, None)


def test_only_document_with_the_words_is_found_where_vectors_prefer_another(monkeypatch):
    world = a_world_whose_first_is_no_answer(monkeypatch)
    world.put("near", "bonsai bonsai", title="A1")
    world.put("holds", "Of fertiliser in spring, and of a bonsai in the moonlight, and of much else.", title="B1")
    answer = ask(world, "bonsai moonlight")
    assert [c["key"] for c in world.invocations[-1].retrieval_details["candidates"]] == ["near", "holds"]
    assert (answer.found, answer.primary.key) == (True, "holds")
