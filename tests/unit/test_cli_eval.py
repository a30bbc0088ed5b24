"""``wellhead eval``: what is counted, and that nothing counted is no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.cli_client import CliError
from ops.cli_eval import Outcome, Question, figures, read_questions


def outcome(level: str | None, *keys: str, answers: tuple[str, ...] = ()) -> Outcome:
    return Outcome(question=Question(query="q", answers=frozenset(answers)), level=level, keys=keys)


def test_questions_are_read(tmp_path: Path):
    file = tmp_path / "q.yaml"
    file.write_text("- {query: a, answers: [x]}\n- {query: b}\n")
    assert read_questions(file) == [
        Question(query="a", answers=frozenset({"x"})),
        Question(query="b", answers=frozenset()),
    ]


@pytest.mark.parametrize("text", ["", "[]", "# nothing\n"])
def test_no_question_is_no_perfect_score(tmp_path: Path, text):
    file = tmp_path / "q.yaml"
    file.write_text(text)
    with pytest.raises(CliError, match="no question"):
        read_questions(file)


@pytest.mark.parametrize("text", ["- a", "query: a", "- {answers: [x]}", "{"])
def test_another_shape_is_said(tmp_path: Path, text):
    file = tmp_path / "q.yaml"
    file.write_text(text)
    with pytest.raises(CliError):
        read_questions(file)


def test_what_is_counted():
    found = figures(
        [
            outcome("PRECISE", "x", answers=("x",)),
            outcome("HIGHLY_RELEVANT", "y", "docs/x.md", answers=("x.md",)),
            outcome(None, answers=("z",)),
            outcome("REFERENCE", "y"),
            outcome("HIGHLY_RELEVANT", "y"),
            outcome(None),
            outcome(None),
        ]
    )
    assert (found["recall@1"], found["recall@3"], found["coverage"]) == (0.3333, 0.6667, 0.6667)
    assert (found["false_accepts"], found["found_though_unanswerable"]) == (0.25, 0.5)
    assert found["levels"]["HIGHLY_RELEVANT"] == {"answerable": 1, "precision": 0.0, "unanswerable": 1}
    assert [w["answers"] for w in found["wrong"]] == [["x.md"], ["z"]]


def test_a_share_of_nothing_is_none():
    found = figures([outcome(None)])
    assert found["recall@1"] is None
    assert found["false_accepts"] == 0.0
