"""The map's form, its budget and what it leaves out."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.knowledge_map import MapDocument, MapDomain, build_map, quoted
from pipeline.llm import estimate_tokens
from pipeline.prompts import RULE

PAY = MapDomain(
    domain_id="payment",
    description="支付链路问题排查",
    when_to_retrieve="用户问题涉及支付、退款、对账时检索；优先检索一次，勿重复",
    documents=(
        MapDocument(title="支付失败排查手册", covers=("支付超时", "扣款无回调")),
        MapDocument(title="退款处理指南", covers=("退款未到账", "退款状态异常")),
    ),
    total=2,
)


def big(domains=50, documents=200):
    return [
        MapDomain(
            domain_id=f"domain-{i:02}",
            description="what the domain deals with, in a sentence of some length " * 2,
            when_to_retrieve="questions about it; search once first, do not repeat",
            documents=tuple(
                MapDocument(title=f"Document {j} of domain {i}", covers=("a case", "another case"))
                for j in range(documents)
            ),
            total=documents,
        )
        for i in range(domains)
    ]


def test_the_form_of_the_original():
    made = build_map([PAY], 8000)
    assert made.yaml == (
        "available_knowledge_domains:\n"
        '- domain_id: "payment"\n'
        '  description: "支付链路问题排查"\n'
        '  when_to_retrieve: "用户问题涉及支付、退款、对账时检索；优先检索一次，勿重复"\n'
        "  documents:\n"
        '  - title: "支付失败排查手册"\n'
        '    covers: ["支付超时", "扣款无回调"]\n'
        '  - title: "退款处理指南"\n'
        '    covers: ["退款未到账", "退款状态异常"]\n'
    )


def test_yaml_and_json_say_the_same():
    made = build_map([PAY, *big(3, 4)], 8000)
    read = yaml.safe_load(made.yaml)["available_knowledge_domains"]
    for entry in read:
        entry.setdefault("documents_not_listed", 0)
    assert read == made.json["available_knowledge_domains"]


def test_within_its_budget_and_every_document_counted():
    for budget in (500, 2000, 8000, 40_000):
        made = build_map(big(), budget)
        assert estimate_tokens(made.yaml) <= budget
        read = yaml.safe_load(made.yaml)
        listed = sum(len(d["documents"]) for d in read["available_knowledge_domains"])
        not_listed = sum(d.get("documents_not_listed", 0) for d in read["available_knowledge_domains"])
        domains = len(read["available_knowledge_domains"])
        assert listed + not_listed == domains * 200
        assert domains + read.get("domains_not_listed", 0) == 50
        assert "most recently used first" in made.yaml
    assert estimate_tokens(build_map(big(), 8000).yaml) > 7000, "the budget is used"


def test_all_domains_come_before_the_second_document_of_any():
    made = build_map(big(20, 50), 4000)
    shown = [len(d["documents"]) for d in made.json["available_knowledge_domains"]]
    assert len(shown) == 20 and max(shown) - min(shown) <= 1
    assert made.json["available_knowledge_domains"][3]["documents"][0]["title"] == "Document 0 of domain 3"


def test_a_domain_whose_summary_is_still_to_come_has_the_rule():
    made = build_map([MapDomain(domain_id="x", documents=(MapDocument(title="退款"),), total=1)], 8000)
    assert made.json["available_knowledge_domains"][0]["when_to_retrieve"] == RULE["zh"]


def test_the_same_domains_make_the_same_etag():
    assert build_map(big(3, 3), 8000).etag == build_map(list(reversed(big(3, 3))), 8000).etag
    assert build_map(big(3, 3), 8000).etag != build_map(big(3, 4), 8000).etag


@given(st.text())
def test_no_text_leaves_its_quotes(text):
    assert yaml.safe_load(f"- a: {quoted(text)}\n- b")[1] == "b"
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert yaml.safe_load(quoted(text)) == text


@given(st.lists(st.text(max_size=40), max_size=5), st.text(max_size=60), st.integers(500, 1500))
@settings(max_examples=50)
def test_any_map_is_yaml_within_its_budget(covers, title, budget):
    domains = [
        MapDomain(
            domain_id=f"d{i}",
            description=title,
            when_to_retrieve=title,
            documents=(MapDocument(title=title, covers=tuple(covers)),) * 9,
            total=9,
        )
        for i in range(9)
    ]
    made = build_map(domains, budget)
    assert isinstance(yaml.safe_load(made.yaml)["available_knowledge_domains"], list)
    assert estimate_tokens(made.yaml) <= budget
