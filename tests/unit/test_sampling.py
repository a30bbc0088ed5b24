"""The input of a domain's summary: all of it while it fits, else a stratified sample that hardly moves."""

from __future__ import annotations

from pipeline.llm import estimate_tokens
from pipeline.sampling import DomainDocument, domain_input, stratified


def documents(n, folder="d", start=0, **fields):
    return [
        DomainDocument(
            id=start + i, key=f"{folder}/{i}", title=f"{folder} title {i}", covers=(f"{folder} case",), **fields
        )
        for i in range(n)
    ]


def test_a_small_domain_is_told_in_full():
    made = domain_input(documents(3, summary="says much", when_to_retrieve="then"), 3, 6000)
    assert made.listed == 3 and made.data.count("<summary>says much</summary>") == 3
    assert made.data.startswith("<domain>\n")


def test_thousands_stay_within_the_budget():
    many = documents(5000, summary="a long summary " * 20)
    for budget in (1000, 3000, 6000):
        made = domain_input(many, 5000, budget)
        assert estimate_tokens(made.data) <= budget
        assert 0 < made.listed < 5000
    assert estimate_tokens(made.data) > 5000, "the budget is used"
    assert "<label>d case × 4096</label>" in made.data


def test_a_small_folder_is_not_drowned_by_a_large_one():
    mixed = documents(4000, "large") + documents(5, "small", 4000)
    made = domain_input(mixed, 4005, 1500)
    assert "small title" in made.data and made.data.count("large title") > 10


def test_one_upload_in_a_large_domain_changes_at_most_two_lines():
    many = documents(4500)
    before = set(domain_input(many, 4500, 3000).data.splitlines())
    after = set(domain_input([*many, DomainDocument(id=9999, key="d/new", title="new")], 4501, 3000).data.splitlines())
    assert len(before ^ after) <= 4


def test_the_order_is_every_document_once():
    many = documents(50) + documents(20, "e", 50)
    assert sorted(d.id for d in stratified(many)) == list(range(70))
