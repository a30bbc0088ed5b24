"""Every sentence that an agent reads about the tools is bound to a test of the behaviour it promises.

A sentence without an entry, an entry without a sentence and a test that does not exist are failures. Whoever changes
the behaviour turns the named test red; whoever changes the sentence has to come here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from pipeline.prompts_memory import SENTENCES
from pipeline.tool_texts import INSTRUCTIONS, TOOLS, description

ROOT = Path(__file__).resolve().parents[2]

RECALL = "tests/integration/test_recall.py::"
MCP = "tests/integration/test_mcp.py::"
RUN = "tests/acceptance/test_mcp.py::"
UNIT = "tests/unit/test_recall.py::"

PROMISES: dict[str, dict[str, tuple[str, ...]]] = {
    "lookup_knowledge": {
        "Searches the knowledge base: finished": (
            MCP + "test_lookup_gives_a_document_once_in_a_session_and_again_in_another",
        ),
        "Use it when you need a fact": (RUN + "test_twenty_steps_with_the_official_client",),
        "A call searches exact names and meaning together": (
            MCP + "test_a_call_returns_at_most_two_documents_with_text_and_citation",
        ),
        "relevance_level and completeness_hint say": (RUN + "test_twenty_steps_with_the_official_client",),
        "What this session was already given": (
            MCP + "test_lookup_gives_a_document_once_in_a_session_and_again_in_another",
            MCP + "test_refetch_hands_a_named_document_out_once_more",
        ),
        "When an aspect is still missing": (MCP + "test_a_missing_aspect_takes_part_in_the_search",),
        "found: false is a finding": (MCP + "test_nothing_found_is_an_answer_and_no_error",),
        "It does not hold past conversations": (
            MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",
        ),
        "Side effect: the session remembers": (MCP + "test_a_lookup_changes_no_document",),
    },
    "doc_query": {
        "Searches past events": (RECALL + "test_an_episode_is_recalled_with_its_events_at_their_own_times",),
        "Use it when something was done": (MCP + "test_memory_is_shared_by_sessions",),
        "A call looks for exact strings": (
            RECALL + "test_a_number_finds_the_event_that_says_it",
            RECALL + "test_names_and_quoted_words_are_found_to_the_letter",
            UNIT + "test_the_text_says_when_where_how_much_and_what_to_do",
            UNIT + "test_no_score_and_no_statistics_in_the_text",
        ),
        "It cannot edit your timeline": (
            UNIT + "test_the_text_says_when_where_how_much_and_what_to_do",
            MCP + "test_committed_events_keep_their_times",
        ),
        "A long episode comes in pages": (RECALL + "test_a_long_episode_comes_in_pages_that_hold_every_event_once",),
        "Media are counted by type": (
            UNIT + "test_view_counts_media_by_type_and_takes_the_first_real_lines",
            RECALL + "test_summaries_keywords_and_media_never_enter_a_vector",
        ),
        "Stored text comes in an escaped envelope": (MCP + "test_stored_text_stays_in_its_envelope",),
        "It does not hold written knowledge": (RECALL + "test_deleted_at_once_and_articles_never",),
        "Side effect: none, unless consume": (RECALL + "test_reading_changes_nothing",),
        "With consume=true": (
            RECALL + "test_consume_holds_the_episode_and_ack_takes_it_away",
            RECALL + "test_every_episode_goes_to_exactly_one_caller",
            MCP + "test_consume_and_ack_and_release",
        ),
        "Settle the lease with doc_ack": (
            RECALL + "test_a_lapsed_lease_comes_back_by_itself_and_its_ack_is_refused",
            MCP + "test_consume_and_ack_and_release",
        ),
        "While a part of the search is down": (RECALL + "test_degraded_recall_never_consumes",),
    },
    "doc_commit": {
        "Stores a new episode": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
        "Use it when a process is finished": (MCP + "test_committed_events_keep_their_times",),
        "Give text, or events": (MCP + "test_a_commit_needs_exactly_one_of_text_and_events",),
        "A call stores the episode under a generated key": (
            MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",
        ),
        "doc_query finds it from then on": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
        "Side effect: one new episode": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
    },
    "doc_ack": {
        "Settles a lease": (MCP + "test_consume_and_ack_and_release",),
        "Use outcome consumed": (MCP + "test_consume_and_ack_and_release",),
        "consumed removes them": (
            RECALL + "test_consume_holds_the_episode_and_ack_takes_it_away",
            RECALL + "test_release_gives_it_back_at_once",
        ),
        "When the lease has lapsed": (
            RECALL + "test_ack_of_a_lapsed_lease_that_nobody_took_is_refused_too",
            RECALL + "test_ack_is_refused_when_the_episode_has_a_newer_version",
            MCP + "test_consume_and_ack_and_release",
        ),
        "It searches nothing": (MCP + "test_ack_touches_only_its_lease",),
    },
    "instructions": {
        "Written knowledge is behind": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
        "The resource wellhead://knowledge-map": (MCP + "test_the_map_and_the_planner_prompt_are_the_tenants",),
        "Stop searching when": (RUN + "test_twenty_steps_with_the_official_client",),
    },
    "memory prompt": {
        "title": (UNIT + "test_the_memory_prompt_names_a_graph_only_when_there_is_one",),
        "context": (RECALL + "test_reading_changes_nothing",),
        "history": (
            RECALL + "test_an_episode_is_recalled_with_its_events_at_their_own_times",
            UNIT + "test_the_text_says_when_where_how_much_and_what_to_do",
        ),
        "graph": (UNIT + "test_the_memory_prompt_names_a_graph_only_when_there_is_one",),
        "knowledge": (MCP + "test_lookup_gives_a_document_once_in_a_session_and_again_in_another",),
        "choose_history": (RECALL + "test_an_episode_is_recalled_with_its_events_at_their_own_times",),
        "choose_graph": (UNIT + "test_the_memory_prompt_names_a_graph_only_when_there_is_one",),
        "choose_knowledge": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
        "commit": (MCP + "test_what_is_committed_is_found_by_doc_query_and_not_by_lookup",),
        "consume": (
            RECALL + "test_reading_changes_nothing",
            RECALL + "test_consume_holds_the_episode_and_ack_takes_it_away",
            RECALL + "test_a_lapsed_lease_comes_back_by_itself_and_its_ack_is_refused",
        ),
        "silence": (RECALL + "test_nothing_is_a_finding",),
    },
}

SAID = {**TOOLS, "instructions": INSTRUCTIONS, "memory prompt": tuple(SENTENCES)}


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@pytest.mark.parametrize("text", sorted(SAID))
def test_every_sentence_is_bound(text):
    sentences, bound = SAID[text], PROMISES[text]
    assert len(sentences) == len(bound)
    for sentence in sentences:
        assert sum(sentence.startswith(opening) for opening in bound) == 1, f"bound to nothing, or twice: {sentence!r}"


@pytest.mark.parametrize("test", sorted({t for b in PROMISES.values() for tests in b.values() for t in tests}))
def test_every_test_that_is_named_exists(test):
    path, _, name = test.partition("::")
    assert name in names_in(path)


def test_every_promise_names_a_test():
    assert all(tests for bound in PROMISES.values() for tests in bound.values())


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_description_covers_five_points(tool):
    """What the layer is, when to use it, what a call does, how it differs, side effects."""
    text = description(tool)
    assert text.split(" ")[0] in {"Searches", "Stores", "Settles"}
    assert "Use " in text
    others = set(TOOLS) - {tool}
    assert any(other in text for other in others)
    if tool != "doc_ack":
        assert "A call " in text and "Side effect" in text
    else:
        assert "removes them" in text and "touches nothing but this lease" in text


def test_doc_commit_says_what_it_is_not_for_and_has_no_tags():
    assert "not meant for single facts" in description("doc_commit")
    assert "tag" not in description("doc_commit").lower()


def test_the_layers_are_told_in_both_languages():
    for name, words in SENTENCES.items():
        assert set(words) == {"zh", "en"}, name
        assert "doc_query" not in words["zh"] or "doc_query" in words["en"]
