"""The numbered text rules: names, refusals, and the golden outputs that hold a rule still."""

from __future__ import annotations

import json

import pytest

from pipeline.documents import VersionText
from pipeline.errors import PipelineError
from pipeline.rules import RULE_VERSION, RULES, UnknownRule, parse_rule, passages_of, rule_name
from tests.regex_tokenizer import RegexTokenizer
from tests.unit.golden import record

RECORDED = json.loads(record.RECORD.read_text(encoding="utf-8"))


def test_the_current_rule_is_recorded():
    assert str(RULE_VERSION) in RECORDED, "python -m tests.unit.golden.record writes down what the new rule does"


@pytest.mark.parametrize("version", sorted(RULES))
def test_a_rule_never_changes(version):
    now, then = record.outputs(version), RECORDED[str(version)]
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    assert not changed, (
        f"text rule {version} now makes other passages of {changed}: vectors in use were made with it. "
        "Keep it as it was, add the new code under the next number and raise RULE_VERSION."
    )


def test_the_golden_documents_tell_rules_apart():
    outputs = record.outputs(RULE_VERSION)
    assert len(outputs) == 3 * len(record.documents()) >= 15
    assert len(set(outputs.values())) > len(record.documents())


def test_names_go_both_ways():
    assert rule_name(400, version=1) == "r1:400"
    assert parse_rule("r1:400") == (1, 400)
    assert parse_rule(rule_name(256)) == (RULE_VERSION, 256)


@pytest.mark.parametrize("name", ["", "r1", "1:400", "r1:0", "r0:400", "r1:-4", "r1:400 ", "r1:4e2", "r١:400"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UnknownRule, match="r1:400"):
        parse_rule(name)


def test_a_rule_this_code_does_not_have_is_refused():
    with pytest.raises(PipelineError, match="r99 is not in this version of the code"):
        passages_of("r99:400", VersionText(title="t", body="text"), RegexTokenizer())


def test_the_size_is_part_of_the_rule():
    text = VersionText(title="t", body="A sentence of six words here. " * 40)
    assert len(passages_of("r1:64", text, RegexTokenizer())) > len(passages_of("r1:128", text, RegexTokenizer())) > 1
