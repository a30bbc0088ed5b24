"""Prompts: a changed text needs a new version; the rule ends every sentence once; the envelope holds."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.prompts import RULE, SERVED, VERSIONS, element, language_of, text, with_rule

# Changing a prompt without a new version in pipeline/prompts.py leaves old summaries in place unnoticed.
HASHES = {
    "describe-1": "2f64ed2b4219e453",
    "domain-1": "030a2f828dc5259a",
    "planner-1": "0b8693a566616c75",
    "repair-1": "3565c35412a5e90f",
}


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_a_changed_text_has_a_new_version(name):
    both = text(name, "zh") + text(name, "en")
    assert HASHES[VERSIONS[name]] == hashlib.sha256(both.encode()).hexdigest()[:16]


def test_languages():
    assert language_of("如何处理 TiDB 的 Write Conflict 报错") == "zh"
    assert language_of("How to handle 写冲突 in a TiDB cluster, and what the error code means") == "en"
    assert language_of("") == language_of("8005 !!") == "en"


@pytest.mark.parametrize(
    ("written", "language", "ended"),
    [
        ("用户问题涉及支付时检索。", "zh", "用户问题涉及支付时检索；优先检索一次，勿重复"),
        ("涉及支付；优先检索一次，勿重复", "zh", "涉及支付；优先检索一次，勿重复"),
        ("优先检索一次，勿重复。涉及支付", "zh", "涉及支付；优先检索一次，勿重复"),
        ("Payment questions.", "en", "Payment questions; search once first, do not repeat"),
        ("", "en", "search once first, do not repeat"),
    ],
)
def test_the_rule_ends_the_sentence(written, language, ended):
    assert with_rule(written, language) == ended


@given(st.text(), st.sampled_from(["zh", "en"]))
def test_the_rule_ends_any_sentence_once(written, language):
    made = with_rule(written, language)
    assert made.endswith(RULE[language])
    assert made.count(RULE[language]) == 1
    assert with_rule(made, language) == made


@given(st.text(), st.booleans())
def test_no_text_opens_or_closes_a_tag(value, line):
    made = element("text", value, line=line)
    assert made == "" or (made.count("<") == 2 and made.count(">") == 2)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_planner_prompt_says_its_rules_and_holds_the_map(language):
    served = SERVED["planner"](language)
    assert served.count("{knowledge_map}") == 1
    for word in ("when_to_retrieve", "covers", "missing_aspect", "documents_not_listed", "domains_not_listed"):
        assert word in served
