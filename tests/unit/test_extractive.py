"""The writer without a model says nothing that its documents do not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.extractive import ExtractiveWriter
from pipeline.llm import one_line
from pipeline.sampling import DomainDocument
from pipeline.writing import DocumentText, DomainTexts

DEMO = sorted((Path(__file__).resolve().parents[2] / "ops" / "demo").glob("*/*.md"))
WRITER = ExtractiveWriter()


def document(body, **fields):
    return WRITER.describe(DocumentText(tenant="t", title=fields.pop("title", ""), body=body, **fields))


@pytest.mark.parametrize("path", DEMO, ids=lambda p: p.stem)
def test_everything_is_verbatim(path):
    body = path.read_text(encoding="utf-8").split("---\n", 2)[2]
    made = document(body)
    plain = one_line(body.replace("`", "").replace("*", ""))
    assert made.covers and made.when_to_retrieve
    for text in (*made.covers, made.when_to_retrieve):
        assert text.replace("`", "").replace("*", "") in plain


def test_headings_first_then_keywords_then_the_title():
    made = document("# Title\n\n## Overview\n\n## Late refunds\n\ntext\n", title="Refunds", keywords=("PAY-1",))
    assert made.covers == ("Late refunds", "PAY-1", "Refunds")


def test_the_given_summary_says_when():
    made = document("Some other sentence here.", summary="How refunds are traced. More.")
    assert made.when_to_retrieve == "How refunds are traced."


def test_the_central_sentence_says_when():
    body = "# 支付超时\n\n天气很好今天不错。支付超时的时候先查网关日志再查支付流水。谢谢阅读本文。\n"
    assert document(body, title="支付超时").when_to_retrieve == "支付超时的时候先查网关日志再查支付流水。"


def test_nothing_to_say_is_said_with_nothing():
    made = document("")
    assert (made.covers, made.when_to_retrieve) == ((), "")


def test_a_domain_of_whole_titles_within_the_limit():
    documents = tuple(
        DomainDocument(id=i, key=f"k{i}", title=f"Title number {i}", covers=("late refunds",)) for i in range(90)
    )
    made = WRITER.summarise(DomainTexts(tenant="t", domain_id="d", documents=documents, total=90))
    assert len(made.description) <= 256
    assert set(made.description.split("; ")) <= {d.title for d in documents}
    assert made.when_to_retrieve == "late refunds"
