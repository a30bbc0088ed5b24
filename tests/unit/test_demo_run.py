"""The demo: which documents it loads and what it accepts as an answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from rich.console import Console

from ops.demo_run import DEMO, as_expected, demo_documents, run_demo
from ops.services import free_ports
from ops.supervisor import StackError
from pipeline.limits import Limits
from pipeline.validation import validate

EXACT = {"query": "PAY-4031", "expect": "exact", "key": "a.md"}
PARAPHRASE = {**EXACT, "expect": "paraphrase"}
NOTHING = {"query": "bonsai", "expect": "nothing", "key": None}


def answer(level: str | None, key: str = "a.md") -> dict[str, Any]:
    return {"found": level is not None, "relevance_level": level, "primary": {"key": key} if level else None}


@pytest.mark.parametrize(
    ("given", "lookup", "met"),
    [
        (answer("PRECISE"), EXACT, True),
        (answer("HIGHLY_RELEVANT"), EXACT, False),
        (answer("PRECISE", "b.md"), EXACT, False),
        (answer("REFERENCE"), PARAPHRASE, True),
        (answer("HIGHLY_RELEVANT"), PARAPHRASE, True),
        (answer("PRECISE"), PARAPHRASE, False),
        (answer(None), PARAPHRASE, False),
        (answer(None), NOTHING, True),
        (answer("REFERENCE"), NOTHING, False),
    ],
)
def test_an_answer_meets_only_the_expectation_it_is_meant_for(
    given: dict[str, Any], lookup: dict[str, Any], met: bool
) -> None:
    assert as_expected(given, lookup) is met


def test_the_demo_documents_are_valid_uploads_in_four_domains() -> None:
    documents = demo_documents()
    uploads = [validate(document, Limits()) for document in documents]
    assert len({upload.key for upload in uploads}) == len(uploads) >= 24
    assert len(Counter(upload.domain for upload in uploads)) == 4
    assert all(upload.title and upload.keywords and "---" not in (upload.body or "")[:4] for upload in uploads)


def test_the_lookups_ask_for_three_different_outcomes_of_documents_that_exist() -> None:
    lookups = yaml.safe_load((DEMO / "lookups.yaml").read_text("utf-8"))
    assert [lookup["expect"] for lookup in lookups] == ["exact", "paraphrase", "nothing"]
    keys = {document["key"] for document in demo_documents()}
    assert all(lookup["key"] is None or lookup["key"] in keys for lookup in lookups)


def test_an_api_that_is_gone_is_one_sentence() -> None:
    with pytest.raises(StackError, match="does not answer the demo any more"):
        run_demo(f"http://127.0.0.1:{free_ports(1)[0]}", Console(quiet=True))
