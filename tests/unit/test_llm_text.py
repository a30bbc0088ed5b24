"""Text around the model: estimates, cuts, and JSON in whatever the model wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.llm import LlmMalformed, cut_text, cut_to_tokens, estimate_tokens, json_object, one_line


def test_the_estimate_is_on_the_safe_side():
    assert estimate_tokens("支付失败排查") == 6
    assert estimate_tokens("a sentence of English words") >= 7
    assert estimate_tokens("def f(x): return {x: [1, 2, 3]}\n") >= 20, "as many as Gemma 3 makes of it"
    assert estimate_tokens("") == 0


@given(st.text(max_size=400), st.integers(0, 200))
def test_cuts_are_beginnings_within_the_limit(text, limit):
    cut = cut_text(text, limit)
    assert len(cut) <= limit and text.strip().startswith(cut)
    assert estimate_tokens(cut_to_tokens(text, limit)) <= limit


def test_cuts_prefer_sentences_then_clauses_and_never_part_a_letter_from_its_mark():
    assert cut_text("第一句话在这里。第二句话在这里。第三句", 17) == "第一句话在这里。第二句话在这里。"
    assert cut_text("one two three four five", 15) == "one two three"
    assert cut_text("aaaae\u0301", 5) == "aaaa"


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', '```json\n{"a": 1}\n```', 'Sure! {"a": 1} Done.', '<think>{"a": 2} no {</think>{"a": 1}', '{{"a": 1}'],
)
def test_the_last_complete_object_is_the_answer(text):
    assert json_object(text) == {"a": 1}


@pytest.mark.parametrize("text", ["", "  ", "no", '{"a": ', "[1, 2]", "{" * 3000])
def test_no_object_is_malformed(text):
    with pytest.raises(LlmMalformed):
        json_object(text)


def test_one_line_keeps_words_apart():
    assert one_line("a\n\tb\u2028c\x00d  e") == "a b c d e"
