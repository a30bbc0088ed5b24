"""What of a document is handed out, and where it stands. Pure; cuts between whole characters only."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.ports import Hit

GAP = "\n\n[…]\n\n"


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """A stretch of a version's body: ``text`` starts at character ``offset``, in line ``first_line`` (from 1).

    ``length``: characters of the whole body.
    """

    text: str
    offset: int
    first_line: int
    length: int

    @property
    def whole(self) -> bool:
        """Is this the whole body?"""
        return self.offset == 0 and len(self.text) == self.length

    def line(self, position: int) -> int:
        """The line (from 1) of a character position of the body."""
        return self.first_line + self.text.count("\n", 0, max(0, position - self.offset))


@dataclass(frozen=True, kw_only=True)
class Citation:
    """Where the most relevant piece stands: heading path, first and last line of the body (from 1), version."""

    headings: tuple[str, ...]
    lines: tuple[int, int]
    version: int


@dataclass(frozen=True, kw_only=True)
class Content:
    """The text that is handed out. ``passages``: which ones it shows; None: the whole body."""

    text: str
    passages: tuple[int, ...] | None
    citation: Citation


def estimate_tokens(text: str) -> int:
    """About how many tokens a model makes of it; within a fifth for Chinese and English prose."""
    wide = sum(1 for c in text if c > "\u2e7f")
    return int(wide * 0.7 + (len(text) - wide) * 0.28) + 1


def choose(
    excerpt: Excerpt, hits: Sequence[Hit], version: int, budget: int, only: frozenset[int] | None = None
) -> Content:
    """The whole body up to ``budget`` tokens, else the best passages with their neighbours and headings.

    ``hits``: the passages found, best first. ``only``: nothing but these ordinals may be shown.
    """
    if only is not None:
        hits = [h for h in hits if h.ordinal in only]
    inside = [h for h in hits if excerpt.offset <= h.start and h.end <= excerpt.offset + len(excerpt.text)]
    if only is None and excerpt.whole and estimate_tokens(excerpt.text) <= budget:
        return Content(text=excerpt.text, passages=None, citation=_cite(excerpt, inside, version))
    if not inside:
        return _beginning(excerpt, version, budget)
    return _pieces(excerpt, inside, version, budget)


def _cite(excerpt: Excerpt, hits: Sequence[Hit], version: int) -> Citation:
    start, end = (hits[0].start, hits[0].end) if hits else (excerpt.offset, excerpt.offset + len(excerpt.text))
    return Citation(
        headings=hits[0].headings if hits else (),
        lines=(excerpt.line(start), excerpt.line(max(start, end - 1))),
        version=version,
    )


def _beginning(excerpt: Excerpt, version: int, budget: int) -> Content:
    """Nothing but L0 named the document: its beginning, as far as the budget goes."""
    end = _fitting(excerpt.text, budget)
    shown = replace(excerpt, text=excerpt.text[:end])
    return Content(text=shown.text, passages=(), citation=_cite(shown, (), version))


def _pieces(excerpt: Excerpt, hits: Sequence[Hit], version: int, budget: int) -> Content:
    taken: list[Hit] = []
    spans: list[tuple[int, int]] = []
    for hit in hits:
        wider = _merged([*spans, _with_neighbours(excerpt, hit)])
        if _tokens(excerpt, wider) > budget:
            wider = _merged([*spans, (hit.start, hit.end)])
            if taken and _tokens(excerpt, wider) > budget:
                break
        taken.append(hit)
        spans = wider
    text = GAP.join(_piece(excerpt, span, taken) for span in spans)
    return Content(text=text, passages=tuple(sorted(h.ordinal for h in taken)), citation=_cite(excerpt, taken, version))


def _piece(excerpt: Excerpt, span: tuple[int, int], taken: Iterable[Hit]) -> str:
    start, end = span
    text = excerpt.text[start - excerpt.offset : end - excerpt.offset].strip("\n")
    headings = next((h.headings for h in sorted(taken, key=lambda h: h.start) if start <= h.start < end), ())
    # A piece out of the middle of a section says which section that is; one that starts with its heading does.
    if not headings or text.lstrip("# ").startswith(headings[-1]):
        return text
    return f"{' › '.join(headings)}\n\n{text}"


def _with_neighbours(excerpt: Excerpt, hit: Hit) -> tuple[int, int]:
    """The passage and up to half its length on both sides, to the ends of paragraphs."""
    reach = max(200, (hit.end - hit.start) // 2)
    low, high = max(excerpt.offset, hit.start - reach), min(excerpt.offset + len(excerpt.text), hit.end + reach)
    before = excerpt.text[low - excerpt.offset : hit.start - excerpt.offset]
    after = excerpt.text[hit.end - excerpt.offset : high - excerpt.offset]
    return hit.start - _paragraphs_back(before, low == 0), hit.end + _paragraphs_on(after, high == excerpt.length)


def _paragraphs_back(before: str, at_start: bool) -> int:
    """How many characters of ``before`` belong to paragraphs that begin within it."""
    if at_start:
        return len(before)
    for mark in ("\n\n", "\n"):
        at = before.find(mark)
        if at >= 0:
            return len(before) - at - len(mark)
    return 0


def _paragraphs_on(after: str, at_end: bool) -> int:
    if at_end:
        return len(after)
    for mark in ("\n\n", "\n"):
        at = after.rfind(mark)
        if at >= 0:
            return at
    return 0


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _tokens(excerpt: Excerpt, spans: Iterable[tuple[int, int]]) -> int:
    return sum(estimate_tokens(excerpt.text[s - excerpt.offset : e - excerpt.offset]) for s, e in spans)


def _fitting(text: str, budget: int) -> int:
    """Where to end so that the text fits: after a paragraph, a line, a sentence, a word, else a whole character."""
    if estimate_tokens(text) <= budget:
        return len(text)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= budget else (low, middle - 1)
    for mark, kept in (("\n\n", 0), ("\n", 0), ("。", 1), (". ", 1), (" ", 0)):
        at = text.rfind(mark, low // 2, low)
        if at > 0:
            return at + kept
    return whole_characters(text, low)


def whole_characters(text: str, end: int) -> int:
    """The last position up to ``end`` that does not cut a letter from its marks or an emoji from its parts."""
    while 0 < end < len(text) and (_joins(text[end]) or text[end - 1] == "\u200d"):
        end -= 1
    return end


def _joins(character: str) -> bool:
    return (
        unicodedata.category(character) in {"Mn", "Me", "Mc", "Cf"}
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or character == "\ufe0f"
    )
