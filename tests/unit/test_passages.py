"""Passages: what belongs together, what is never broken, and what holds for any text at all."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cutting import PIECE_BYTES, WindowTooSmall
from pipeline.documents import Block, Event, VersionText
from pipeline.fingerprint import digest
from pipeline.passages import cut_passages
from pipeline.sentences import SLAB
from tests.regex_tokenizer import RegexTokenizer

AT = datetime(2026, 3, 1, tzinfo=UTC)


def article(body, title="Title", size=64, tokenizer=None):
    text = VersionText(title=title, body=body)
    return checked(text, cut_passages(text, tokenizer or RegexTokenizer(), size), size, tokenizer)


def episode(*said, size=64):
    events = tuple(Event(at=AT, blocks=tuple(as_block(item) for item in event)) for event in said)
    text = VersionText(title="Talk", events=events)
    return text, checked(text, cut_passages(text, RegexTokenizer(), size), size)


def as_block(item):
    if item.startswith("ref:"):
        return Block(type="image", mime="image/png", ref=item)
    return Block(type="text", text=item)


def checked(text, passages, size, tokenizer=None):
    """The invariants that every list of passages keeps."""
    body, at = text.body_text, 0
    counts = (tokenizer or RegexTokenizer()).count([passage.text for passage in passages])
    for ordinal, (passage, count) in enumerate(zip(passages, counts, strict=True)):
        piece = body[passage.start : passage.end]
        assert passage.ordinal == ordinal
        assert passage.start >= at
        assert not body[at : passage.start].strip(), "text between two passages is lost"
        assert piece and piece == piece.strip()
        assert passage.text.endswith(piece)
        assert passage.tokens == count <= size
        assert passage.hash == digest(passage.text)
        assert len(piece.encode("utf-8", "surrogatepass")) <= PIECE_BYTES
        at = passage.end
    assert not body[at:].strip(), "text after the last passage is lost"
    return passages


def pieces(passages, body):
    return [body[passage.start : passage.end] for passage in passages]


LINES = st.sampled_from(
    ["# One", "## Two", "### Three", "Setext", "---", "===", "", "", "```", "~~~", "- item one", "| a | b |", "说明："]
    + ["第一句。第二句！第三句？", "A short sentence. Another one; and a third.", "word " * 60, "字" * 90, "x" * 300]
    + ["👩‍👩‍👧" * 9, "e\u0301" * 30, "\u3000", "\ud800", "    indented", "#" * 7 + " no heading", "> quoted:"]
)
BODIES = st.one_of(
    st.lists(LINES, max_size=40).map("\n".join),
    st.text(max_size=400),
    st.text(alphabet="ab \n#`.。:é\u0301\u200d👩", max_size=600),
)


@settings(max_examples=250, deadline=None)
@given(body=BODIES, title=st.text(max_size=80), size=st.integers(24, 90), newlines=st.booleans())
def test_any_article_is_covered_in_order_within_the_budget(body, title, size, newlines):
    article(body, title, size, RegexTokenizer(newlines=newlines))


@settings(max_examples=100, deadline=None)
@given(said=st.lists(st.lists(st.text(max_size=120) | st.just("ref:1"), max_size=3), max_size=12))
def test_any_episode_is_covered_in_order_within_the_budget(said):
    episode(*said, size=40)


CHARACTERS = st.sampled_from(["字", "a", "e\u0301", "👩‍👩‍👧", "👍🏽", "!\ufe0f", "。\u0301", ",\u0301", "é", "❤️", " "])


@settings(max_examples=150, deadline=None)
@given(characters=st.lists(CHARACTERS, min_size=1, max_size=400), size=st.integers(24, 40))
def test_no_cut_inside_a_character(characters, size):
    borders = {0, *accumulate(len(character) for character in characters)}
    for passage in article("".join(characters), "", size):
        assert {passage.start, passage.end} <= borders


def test_a_joined_pair_of_surrogates_is_one_character():
    body = "\ud83d\ude00" * 300
    for passage in article(body, "", 40):
        assert passage.start % 2 == passage.end % 2 == 0


@settings(max_examples=60, deadline=None)
@given(
    paragraphs=st.lists(
        st.sampled_from(["A short one.", "word " * 30, "字" * 50, "字。" * 60]), min_size=1, max_size=15
    )
)
def test_appending_a_paragraph_keeps_all_but_the_last_passage(paragraphs):
    before = article("\n\n".join(paragraphs))
    after = article("\n\n".join([*paragraphs, "One more paragraph, at the end."]))
    assert [p.hash for p in after[: len(before) - 1]] == [p.hash for p in before[:-1]]


@settings(max_examples=60, deadline=None)
@given(said=st.lists(st.sampled_from(["hello there", "word " * 30, "字" * 90]), min_size=1, max_size=15))
def test_appending_an_event_keeps_all_but_the_last_passage(said):
    _, before = episode(*[[text] for text in said])
    _, after = episode(*[[text] for text in [*said, "and one more"]])
    assert [p.hash for p in after[: len(before) - 1]] == [p.hash for p in before[:-1]]


@pytest.mark.parametrize("body", ["", " \n\t\n", "\u3000\n"])
def test_a_blank_body_has_no_passages(body):
    assert article(body) == []


def test_an_episode_of_media_alone_has_no_passages():
    assert episode(["ref:1"], ["ref:2", "ref:3"])[1] == []


def test_what_is_embedded_is_title_headings_piece():
    body = (
        "# Guide\n\nIntro text.\n\n## Setup {#setup}\n\n"
        + "install it now " * 16
        + "\n\n## Use\n\n"
        + "run it daily " * 10
    )
    first, second, third = article(body, size=64)
    assert first.text == "Title\nGuide\n# Guide\n\nIntro text."
    assert second.headings == ("Guide", "Setup")
    assert second.text.startswith("Title\nGuide > Setup\n## Setup {#setup}\n\ninstall it now")
    assert third.headings == ("Guide", "Use")


def test_a_heading_that_is_the_title_is_not_said_twice():
    passages = article("# My Guide\n\n## Part\n\nText of the part.", title="my guide")
    assert [p.text for p in passages] == ["my guide\nPart\n# My Guide\n\n## Part\n\nText of the part."]
    assert passages[0].headings == ("My Guide", "Part")
    assert article("# My Guide\n\nText.", title="My Guide")[0].text == "My Guide\n# My Guide\n\nText."


def test_small_sections_of_one_parent_share_a_passage():
    body = "# Alert\n\n## Meaning\n\nIt is down.\n\n## Impact\n\nNo reads.\n\n## Diagnosis\n\nLook at the log."
    (only,) = article(body, size=100)
    assert only.headings == ("Alert",)


def test_large_sections_have_passages_of_their_own():
    body = "# A\n\n## B\n\n" + "one two " * 20 + "\n\n## C\n\n" + "three four " * 20
    assert [p.headings for p in article(body, size=120)] == [("A", "B"), ("A", "C")]


def test_sections_of_different_parents_are_not_mixed():
    body = "# A\n\n" + "word " * 30 + "\n\n## B\n\n### C\n\n" + "one " * 30 + "\n\n# D\n\n" + "two " * 10
    assert [p.headings for p in article(body, size=80)] == [("A",), ("A", "B", "C"), ("D",)]


def test_a_heading_goes_with_the_text_below_it():
    body = "word " * 35 + "\n\n## Next\n\n" + "text " * 30
    first, second = pieces(article(body), body)
    assert "Next" not in first
    assert second.startswith("## Next\n\ntext")


def test_a_line_that_announces_a_block_goes_with_it():
    body = "word " * 30 + "\n\nRun this command:\n\n```\n" + "ls -l\n" * 8 + "```"
    first, second = pieces(article(body), body)
    assert first == ("word " * 30).strip()
    assert second.startswith("Run this command:\n\n```\nls")


def test_a_hash_in_fenced_code_is_no_heading():
    (passage,) = article("# A\n\n```sh\n# comment\necho\n```\n\n   ~~~\n# other\n   ~~~\ntext")
    assert passage.headings == ("A",)


def test_an_unclosed_fence_runs_to_the_end():
    assert {p.headings for p in article("# A\n\n```\n# comment\n\n# more\n")} == {("A",)}


def test_setext_headings_count():
    body = "Top\n===\n\n" + "word " * 40 + "\n\nSub\n---\n\n" + "text " * 40
    assert [p.headings for p in article(body, size=64)] == [("Top",), ("Top", "Sub")]


def test_a_rule_below_a_list_or_two_lines_is_no_heading():
    assert article("one line\nanother line\n---\ntext")[0].headings == ()
    assert article("- item\n---\ntext")[0].headings == ()


def test_headings_are_plain_text():
    (passage,) = article("## The `code` in **[a link](http://x/y)** ##\n\ntext")
    assert passage.headings == ("The code in a link",)


def test_a_table_or_paragraph_that_fits_is_kept_whole():
    table = "| a | b |\n|---|---|\n" + "| one | two |\n" * 4
    body = "word " * 30 + "\n\n" + table + "\n" + "text " * 30
    assert table.strip() in pieces(article(body), body)


def test_a_long_table_is_cut_between_rows():
    body = "\n".join(f"| row {number} | value {number}. and more |" for number in range(60))
    for piece in pieces(article(body), body):
        assert piece.startswith("| row") and piece.endswith("|")


@pytest.mark.parametrize(
    "sentence", ["这是一个完整的句子。", "真的吗？", "先等一等；", "A sentence, that ends. ", "Stop! "]
)
def test_a_long_paragraph_is_cut_between_sentences(sentence):
    body = sentence * 80
    for piece in pieces(article(body), body):
        assert piece.startswith(sentence.strip()) and piece.endswith(sentence.strip())


def test_an_abbreviation_or_a_number_is_no_sentence_end():
    body = "version 3.14 of example.com " * 60
    for piece in pieces(article(body, size=200), body):
        assert not piece.endswith((".", "3", "example"))


def test_events_are_kept_whole():
    said = [[f"message {number} " + "word " * 12] for number in range(12)]
    text, passages = episode(*said)
    assert len(passages) == 3
    for passage in passages:
        assert text.body_text[passage.start : passage.end].startswith("message")
        assert passage.headings == ()
        assert passage.text.startswith("Talk\nmessage")


def test_a_long_event_is_split_and_starts_a_passage():
    text, passages = episode(["word " * 30], ["第一句很长很长。" * 20], ["end"])
    found = pieces(passages, text.body_text)
    assert len(found) > 3
    assert found[1].startswith("第一句")
    assert found[-1].endswith("\n\nend")


def test_hash_marks_in_an_episode_are_text():
    _, (passage,) = episode(["# not a heading"], ["```"], ["# more"])
    assert passage.headings == ()


def test_an_over_long_title_leaves_half_of_the_window():
    body = "text of the body " * 20
    for passage in article(body, title="very " * 200, size=64):
        head = passage.text[: -(passage.end - passage.start)]
        assert RegexTokenizer().count([head])[0] <= 32
        assert head.endswith("very\n")


def test_an_over_long_path_keeps_its_inner_end():
    body = "# " + "outer " * 20 + "\n\n## " + "middle " * 20 + "\n\n### Inner\n\n" + "text " * 10
    last = article(body, size=64)[-1]
    head = last.text[: -(last.end - last.start)]
    assert "Inner" in head
    assert len(last.headings) == 3


def test_a_heading_of_a_thousand_characters_is_text():
    assert {p.headings for p in article("# " + "long " * 200)} == {()}


def test_a_window_without_room_for_text_is_refused():
    with pytest.raises(WindowTooSmall):
        article("text", size=8)
    with pytest.raises(WindowTooSmall):
        article("text", size=1)


@pytest.mark.parametrize("unit", ["字", "a", "数据库连接超时，", "\x01", "👩‍👩‍👧", "word "])
def test_a_line_of_a_megabyte_is_read_once_and_in_slabs(unit):
    body = unit * (1_000_000 // len(unit.encode()))
    tokenizer = RegexTokenizer()
    passages = article(body, size=400, tokenizer=tokenizer)
    assert tokenizer.longest <= SLAB
    assert tokenizer.seen <= 1.01 * len(body)
    assert len(passages) > 100
    # Passages but the last are well filled, whatever the line is made of.
    if unit not in {"a", "\x01"}:
        assert min(p.tokens for p in passages[:-1]) > 300


def test_a_document_of_headings_alone():
    body = "\n".join(f"## Heading number {number}" for number in range(100))
    assert len(article(body)) > 5


def test_blank_space_of_megabytes_is_not_embedded():
    body = "begin" + " " * 2_000_000 + "\n" * 100_000 + "end"
    assert pieces(article(body), body) == ["begin", "end"]
