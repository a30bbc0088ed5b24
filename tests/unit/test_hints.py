"""What the agent is told, and what it never is."""

from __future__ import annotations

import re

import pytest

from pipeline.hints import Outcome, completeness_hint, message
from pipeline.relevance import Level
from pipeline.wording import language


@pytest.mark.parametrize(
    ("level", "chinese"),
    [
        (Level.PRECISE, "知识库中不存在比上述结果更精准的文档"),
        (Level.HIGHLY_RELEVANT, "当前结果已高度相关，继续检索不太可能找到更精准的文档"),
        (Level.REFERENCE, "当前结果为相关参考，如需更精准信息请明确缺少的具体维度"),
    ],
)
def test_chinese_hints_are_the_original_ones(level, chinese):
    assert completeness_hint(Outcome(level=level), "zh") == chinese
    assert not re.search(r"[\u4e00-\u9fff]", completeness_hint(Outcome(level=level), "en"))


def test_language_is_that_of_the_question():
    assert language("ERR_TIMEOUT 是什么") == "zh"
    assert language("what is ERR_TIMEOUT") == "en"


@pytest.mark.parametrize("tongue", ["zh", "en"])
def test_every_outcome_has_its_own_hint(tongue):
    outcomes = [
        *(Outcome(level=level) for level in (Level.PRECISE, Level.HIGHLY_RELEVANT, Level.REFERENCE)),
        Outcome(level=Level.DEDUPED, reason="doc_retrieved"),
        Outcome(level=Level.DEDUPED, reason="domain_retrieved"),
        Outcome(level=None),
        Outcome(level=None, empties=2),
        Outcome(level=None, degraded=["vectors"]),
    ]
    said = [completeness_hint(o, tongue) for o in outcomes]
    assert len(set(said)) == len(said)


def test_second_empty_answer_says_stop():
    assert "stop searching" in completeness_hint(Outcome(level=None, empties=2), "en")
    assert "stop" not in completeness_hint(Outcome(level=None, empties=1), "en")
    assert "停止检索" in completeness_hint(Outcome(level=None, empties=3), "zh")
    assert "不查全不会被追责，重复检索才会被惩罚" in completeness_hint(Outcome(level=None, empties=2), "zh")


def test_nothing_found_is_a_fact_with_the_nearest_and_the_next_move():
    outcome = Outcome(level=None, title="Refunds", domain="payments")
    assert "“Refunds” (domain: payments)" in message(outcome, "en")
    assert "not a failure" in completeness_hint(outcome, "en")
    assert "no document comes near" in message(Outcome(level=None), "en")


def test_a_broken_part_never_becomes_nothing_found():
    outcome = Outcome(level=None, empties=5, degraded=["encoder", "vectors"])
    assert "does not mean that it is not there" in completeness_hint(outcome, "en")
    assert "semantic encoding, vector search unavailable" in message(outcome, "en")


def test_message_names_what_was_withheld_and_what_is_pending():
    said = message(
        Outcome(level=Level.REFERENCE, title="A", domain="d", supplements=1, deduped=["B", "C"], pending=2), "zh"
    )
    assert all(part in said for part in ("《A》", "领域：d", "1 篇", "B、C", "另有 2 篇"))
    assert "Not handed out again: B." in message(Outcome(level=Level.DEDUPED, deduped=["B"]), "en")


def test_a_title_with_braces_is_only_a_title():
    assert "{0} {title}" in message(Outcome(level=Level.PRECISE, title="{0} {title}"), "en")
