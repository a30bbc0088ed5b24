"""Where a text may be cut when it must be: sentence ends first, then white space, never inside a character."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

# One tokenizer call sees at most this many code points, which bounds its memory on a line of megabytes.
SLAB = 32_768
# A "token" longer than this is a word the tokenizer gave up on; it is cut as if it were several.
LONGEST_TOKEN = 16

_SENTENCE = re.compile(r"[。！？；!?…]+[”’\"'』」）)】》]*|[.;][\"')\]]*(?=\s)|\n[ \t]*\n")
_CLAUSE = re.compile(r"[，、：,:]|\s")
_JOINERS = "\u200d\ufe0e\ufe0f"


def sentence_ends(text: str, *, lines: bool) -> list[int]:
    """Offsets after which a sentence (or, with ``lines``, a line) of ``text`` ends."""
    pattern = re.compile(r"\n") if lines else _SENTENCE
    return [match.end() for match in pattern.finditer(text) if not _joined(text, match.end())]


def slabs(text: str, start: int, end: int, *, lines: bool) -> Iterator[tuple[int, int]]:
    """``text[start:end]`` in spans of at most ``SLAB`` code points, ended at a sentence where there is one."""
    while end - start > SLAB:
        ends = sentence_ends(text[start : start + SLAB], lines=lines)
        cut = start + ends[-1] if ends and ends[-1] > SLAB // 2 else whole_character(text, start + SLAB, start)
        yield start, cut
        start = cut
    yield start, end


def whole_character(text: str, cut: int, start: int) -> int:
    """``cut`` moved left, but not to ``start``, until it lies between two characters as a reader sees them."""
    lowest = max(start + 1, cut - 32)
    moved = cut
    while moved > lowest and _joined(text, moved):
        moved -= 1
    return cut if _joined(text, moved) else moved


def _joined(text: str, cut: int) -> bool:
    before, after = text[cut - 1], text[cut : cut + 1]
    if after < "\u0300":
        return False
    return (
        unicodedata.category(after).startswith("M")
        or after in _JOINERS
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or before == "\u200d"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )


def finer_cuts(text: str, spans: list[tuple[int, int]], limit: int, *, lines: bool) -> list[tuple[int, int]]:
    """Cuts of ``text`` as (offset, tokens up to it), at most ``limit`` tokens apart, the last at its end.

    At sentence ends where sentences fit ``limit``; a longer one at clause ends, white space or, failing
    these, between any two tokens. Very short sentences stay together.
    """
    ends = token_ends(text, spans)
    result: list[tuple[int, int]] = []
    begin = held = (0, 0)
    for cut in [*sentence_ends(text, lines=lines), len(text)]:
        upto = len(ends) if cut == len(text) else bisect_right(ends, cut)
        if upto - begin[1] > limit and held != begin:
            result.append(held)
            begin = held
        if upto - begin[1] > limit:
            result += _windows(text, ends, begin, upto, limit)
        held = (cut, upto)
        if upto - begin[1] >= limit // 16:
            result.append(held)
            begin = held
    return result if held == begin else [*result, held]


def token_ends(text: str, spans: list[tuple[int, int]]) -> list[int]:
    """Where the tokens end, never falling; over-long ones count as several."""
    ends: list[int] = []
    last = 0
    for start, end in spans:
        at = max(start, last)
        while end - at > LONGEST_TOKEN:
            at = whole_character(text, at + LONGEST_TOKEN, at)
            ends.append(at)
        last = max(end, last)
        ends.append(last)
    return ends


def _windows(text: str, ends: list[int], begin: tuple[int, int], upto: int, limit: int) -> Iterator[tuple[int, int]]:
    # Quarters of the limit: four of them fill a passage, and each has room to end at a word.
    step = max(1, limit // 4)
    offset, done = begin
    while upto - done > step:
        far = ends[done + step - 1]
        near = ends[done + step // 2] if step > 1 else far
        soft = [match.end() for match in _CLAUSE.finditer(text, near, far) if not _joined(text, match.end())]
        cut = soft[-1] if soft else whole_character(text, far, offset)
        if cut <= offset:
            cut = far
        offset, done = cut, max(done + 1, bisect_right(ends, cut))
        yield offset, done
