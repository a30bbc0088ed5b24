"""Finds the blocks of a Markdown text and the headings above each: offsets only, nothing is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# A longer "heading" is a paragraph that happens to start with #: it must not be repeated over every passage.
LONGEST_HEADING = 300

_LINE = re.compile(r"[^\n]+\n?|\n")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\n?\Z")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*\n?\Z")
_STRUCTURED = re.compile(r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|[|>])")
_ANCHOR = re.compile(r"\s*\{#[^{}]*\}\s*\Z")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKS = re.compile(r"[`*]+")


@dataclass(frozen=True, kw_only=True)
class MarkdownBlock:
    """``text[start:end]`` is one block without outer white space; ``section`` counts the headings before it."""

    start: int
    end: int
    path: tuple[str, ...]
    section: int
    level: int = 0
    """1 to 6 for a heading, 0 for anything else."""
    lines: bool = False
    """Lines are units of meaning here (code, tables, lists): cut between them rather than inside."""


@dataclass
class _Scanner:
    text: str
    path: list[tuple[int, str]] = field(default_factory=list)
    section: int = 0
    begin: int | None = None
    end: int = 0
    count: int = 0
    lines: bool = False
    fence: str = ""

    def scan(self) -> Iterator[MarkdownBlock]:
        for match in _LINE.finditer(self.text):
            yield from self._line(match.group(), match.start(), match.end())
        yield from self._flush()

    def _line(self, line: str, start: int, end: int) -> Iterator[MarkdownBlock]:
        if self.fence:
            self._grow(start, end)
            if _closes(line, self.fence):
                self.fence = ""
                yield from self._flush()
            return
        if opened := _opens(line):
            yield from self._flush()
            self._grow(start, end)
            self.fence, self.lines = opened, True
        elif not line.strip():
            yield from self._flush()
        elif (atx := _atx(line)) is not None:
            yield from self._flush()
            yield from self._heading(*atx, start, end)
        elif (level := self._setext(line)) and self.begin is not None:
            title, begin = self.text[self.begin : start], self.begin
            self.begin = None
            yield from self._heading(level, title, begin, end)
        else:
            self._grow(start, end)
            self.lines = self.lines or _STRUCTURED.match(line) is not None

    def _grow(self, start: int, end: int) -> None:
        if self.begin is None:
            self.begin, self.count, self.lines = start, 0, False
        self.end = end
        self.count += 1

    def _setext(self, line: str) -> int:
        """1 or 2 when ``line`` underlines the one plain line before it, else 0."""
        match = _SETEXT.match(line) if self.begin is not None and self.count == 1 and not self.lines else None
        if match is None or self.end - (self.begin or 0) > LONGEST_HEADING:
            return 0
        return 1 if match.group(1)[0] == "=" else 2

    def _heading(self, level: int, title: str, start: int, end: int) -> Iterator[MarkdownBlock]:
        self.path = [entry for entry in self.path if entry[0] < level]
        if name := _plain(title):
            self.path.append((level, name))
        self.section += 1
        yield self._block(start, end, level=level, lines=False)

    def _flush(self) -> Iterator[MarkdownBlock]:
        if self.begin is not None:
            yield self._block(self.begin, self.end, level=0, lines=self.lines)
        self.begin = None

    def _block(self, start: int, end: int, *, level: int, lines: bool) -> MarkdownBlock:
        start, end = strip(self.text, start, end)
        path = tuple(name for _, name in self.path)
        return MarkdownBlock(start=start, end=end, path=path, section=self.section, level=level, lines=lines)


def blocks(text: str) -> Iterator[MarkdownBlock]:
    """The blocks of ``text`` in order, none blank; fenced code is one block and holds no headings."""
    for block in _Scanner(text).scan():
        if block.start < block.end:
            yield block


def first_heading(text: str, level: int = 6) -> str:
    """The plain text of the first heading of at most that level, or an empty string."""
    for block in blocks(text):
        if 0 < block.level <= level and block.path:
            return block.path[-1]
    return ""


def strip(text: str, start: int, end: int) -> tuple[int, int]:
    """The offsets of ``text[start:end]`` without outer white space; ``(end, end)`` when all is blank."""
    piece = text[start:end]
    left = piece.lstrip()
    start = end - len(left)
    return start, start + len(left.rstrip())


def _opens(line: str) -> str:
    match = _FENCE.match(line)
    if match is None or (match.group(1)[0] == "`" and "`" in match.group(2)):
        return ""
    return match.group(1)


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)


def _atx(line: str) -> tuple[int, str] | None:
    # The length is asked first: the pattern would walk a line of megabytes.
    if len(line) > LONGEST_HEADING or "#" not in line[:4]:
        return None
    match = _ATX.match(line)
    return (len(match.group(1)), match.group(2) or "") if match else None


def _plain(title: str) -> str:
    title = _ANCHOR.sub("", title)
    title = _MARKS.sub("", _LINK.sub(r"\1", title))
    return " ".join(title.split())
