"""What is shown of a document and where it is said to stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.content import Excerpt, choose, estimate_tokens, whole_characters
from pipeline.ports import Hit

SECTIONS = [
    f"## Part {i}\n\n" + "\n".join(f"Line {i}.{j} says something of its own." for j in range(30)) for i in range(8)
]
BODY = "\n\n".join(SECTIONS)


def excerpt(body: str = BODY) -> Excerpt:
    return Excerpt(text=body, offset=0, first_line=1, length=len(body))


def hit(ordinal: int, start: int, end: int, headings: tuple[str, ...] = ("Guide", "Part")) -> Hit:
    return Hit(
        key=f"1.1.{ordinal}", document=1, version=1, ordinal=ordinal, domain="d", hash="h", start=start, end=end,
        headings=headings,
    )  # fmt: skip


def piece(i: int, text: str = "Line {i}.10", to: str = "Line {i}.14") -> Hit:
    return hit(i, BODY.index(text.format(i=i)), BODY.index(to.format(i=i)))


def test_short_body_is_handed_out_whole_and_cites_the_passage():
    content = choose(excerpt("a\nb\nc\nd"), [hit(0, 2, 5)], version=3, budget=100)
    assert content.text == "a\nb\nc\nd"
    assert content.passages is None
    assert (content.citation.lines, content.citation.version) == ((2, 3), 3)
    assert content.citation.headings == ("Guide", "Part")


def test_without_a_passage_the_whole_body_is_cited():
    assert choose(excerpt("a\nb\nc"), [], version=1, budget=100).citation.lines == (1, 3)


def test_long_body_gives_the_best_passages_with_neighbours_and_headings():
    content = choose(excerpt(), [piece(5), piece(2)], version=1, budget=700)
    assert content.passages == (2, 5)
    assert "Line 5.10" in content.text and "Line 2.10" in content.text
    assert "Line 5.9 " in content.text, "the neighbour before"
    assert content.text.index("Line 2.10") < content.text.index("Line 5.10"), "in the order of the document"
    assert "Guide › Part" in content.text
    assert "[…]" in content.text
    first = BODY[: BODY.index("Line 5.10")].count("\n") + 1
    assert content.citation.lines[0] == first, "the best passage is cited, not the first one"


def test_budget_is_kept_best_first():
    content = choose(excerpt(), [piece(5), piece(2), piece(7)], version=1, budget=60)
    assert content.passages == (5,)
    assert estimate_tokens(content.text) <= 60


def test_one_passage_is_always_given():
    assert choose(excerpt(), [piece(5)], version=1, budget=1).passages == (5,)


def test_only_what_may_be_shown():
    content = choose(excerpt(), [piece(5), piece(2)], version=1, budget=700, only=frozenset({2}))
    assert content.passages == (2,)
    assert "Line 5.10" not in content.text


def test_named_long_document_gives_its_beginning_cut_at_a_line():
    content = choose(excerpt(), [], version=1, budget=50)
    assert BODY.startswith(content.text)
    assert BODY[len(content.text)] == "\n"
    assert content.passages == ()
    assert estimate_tokens(content.text) <= 50


def test_lines_are_those_of_the_body_not_of_the_excerpt():
    at = BODY.index("## Part 4")
    part = Excerpt(text=BODY[at:], offset=at, first_line=BODY[:at].count("\n") + 1, length=len(BODY))
    lines = choose(part, [piece(6)], version=1, budget=60).citation.lines
    assert lines == choose(excerpt(), [piece(6)], version=1, budget=60).citation.lines


def test_passage_outside_of_the_excerpt_is_left_out():
    at = BODY.index("## Part 4")
    part = Excerpt(text=BODY[at:], offset=at, first_line=1, length=len(BODY))
    assert choose(part, [piece(2), piece(6)], version=1, budget=700).passages == (6,)


@pytest.mark.parametrize("text", ["e\u0301", "👩\u200d💻", "👍\U0001f3fd", "क\u093f"])
def test_no_cut_inside_a_character(text):
    for end in range(1, len(text)):
        assert whole_characters(f"ab{text}", 2 + end) == 2


@given(st.text(min_size=1, max_size=400), st.integers(1, 60))
def test_cutting_any_text_gives_a_beginning_of_it(text, budget):
    shown = choose(excerpt(text), [], version=1, budget=budget).text
    assert text.startswith(shown)
    shown.encode("utf-8", "surrogatepass")
