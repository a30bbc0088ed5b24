"""Packs units of text greedily into passages, so that text appended at the end changes only the last ones.

Small neighbouring sections share a passage: a runbook's "Impact: none." alone says nothing, and would be
found for everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipeline.documents import Passage
from pipeline.errors import PipelineError
from pipeline.fingerprint import digest
from pipeline.markdown_blocks import strip
from pipeline.ports import Tokenizer
from pipeline.sentences import SLAB, finer_cuts, slabs, whole_character

# Milvus keeps at most 65,535 bytes of text in a field; title and headings may take 12,000 of them.
PIECE_BYTES = 48_000


class WindowTooSmall(PipelineError):
    """The passage size leaves no room for text beside the model's prefix and special tokens."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """``text[start:end]``, kept whole where it fits. ``tokens`` is an estimate: the model's count decides at the end.

    ``lead``: belongs to what follows (a heading, a line ending with a colon).
    """

    start: int
    end: int
    tokens: int
    path: tuple[str, ...] = ()
    section: int = 0
    heading: bool = False
    lead: bool = False
    lines: bool = False


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What a run of neighbouring units comes to."""

    start: int
    end: int
    tokens: int
    size: int
    path: tuple[str, ...]
    section: int
    heading: bool


def measure(text: str, start: int, end: int, tokenizer: Tokenizer) -> int:
    """Estimated tokens of ``text[start:end]``; ``SLAB`` for what is too long to be looked at in one go."""
    return len(tokenizer.spans(text[start:end])) if end - start <= SLAB else SLAB


class Head:
    """Title and heading path above every piece, at most half of the budget."""

    def __init__(self, title: str, tokenizer: Tokenizer, budget: int) -> None:
        self._title = " ".join(title.split())
        self._tokenizer = tokenizer
        self._limit = budget // 2
        self._known: dict[tuple[str, ...], tuple[str, int]] = {}
        self._free = self._limit - tokenizer.count([""])[0]
        if self._free < 1:
            raise WindowTooSmall(f"a passage size of {budget} tokens is too small for this model")

    def of(self, path: tuple[str, ...]) -> tuple[str, int]:
        """The text that goes before the piece, and its tokens with prefix and special tokens."""
        if path not in self._known:
            self._known[path] = self._build(path)
        return self._known[path]

    def _build(self, path: tuple[str, ...]) -> tuple[str, int]:
        names = path[1:] if path and path[0].casefold() == self._title.casefold() else path
        share = self._free
        while True:
            title = self._clip(self._title, share if not names else max(1, share // 2))
            line = self._line(names, max(1, share - len(self._tokenizer.spans(title))))
            text = "".join(f"{part}\n" for part in (title, line) if part)
            tokens = self._tokenizer.count([text])[0]
            if tokens <= self._limit:
                return text, tokens
            share -= tokens - self._limit
            if share < 1:
                return "", self._tokenizer.count([""])[0]

    def _line(self, names: tuple[str, ...], limit: int) -> str:
        """The innermost headings that fit: they say most about the piece."""
        line = " > ".join(names)
        while len(names) > 1 and len(self._tokenizer.spans(line)) > limit:
            names = names[1:]
            line = " > ".join(names)
        return self._clip(line, limit)

    def _clip(self, text: str, limit: int) -> str:
        spans = self._tokenizer.spans(text)
        return text if len(spans) <= limit else text[: spans[limit - 1][1]].rstrip()


@dataclass(kw_only=True)
class Cutter:
    """One run over one text. ``held`` becomes the next passage; ``leads`` wait for what they lead to."""

    text: str
    tokenizer: Tokenizer
    budget: int
    head: Head
    held: list[Unit] = field(default_factory=list)
    leads: list[Unit] = field(default_factory=list)
    stack: list[Unit] = field(default_factory=list)
    sections: dict[int, int] = field(default_factory=dict)
    passages: list[Passage] = field(default_factory=list)
    _held: Extent | None = None
    _leads: Extent | None = None

    def cut(self, units: Sequence[Unit]) -> list[Passage]:
        """The passages over ``units``, which are in order and cover all that is not blank."""
        for unit in units:
            self.sections[unit.section] = self.sections.get(unit.section, 0) + unit.tokens
        self.stack = list(reversed(units))
        while self.stack or self.leads or self.held:
            if self.stack:
                self._take(self.stack.pop())
            else:
                self._finish()
        return self.passages

    def _take(self, unit: Unit) -> None:
        room = self._room(unit.path)
        ahead = self._join(self._leads, unit)
        if unit.lead and ahead.tokens <= room // 2 and ahead.size <= PIECE_BYTES // 2:
            self.leads.append(unit)
            self._leads = ahead
        elif self._belongs(unit) and self._fits(self._join(self._held, ahead)):
            self._hold([*self.leads, unit], ahead)
        elif self.held and not (self._belongs(unit) and self._may_fill_up(unit, ahead, room)):
            self.stack.append(unit)
            self._emit()
        else:
            self._split(unit, room)

    def _may_fill_up(self, unit: Unit, ahead: Extent, room: int) -> bool:
        """A unit longer than any passage begins in the current one when that is small and enough is left."""
        held = self._held.tokens if self._held else 0
        waiting = ahead.tokens - unit.tokens
        return unit.tokens > room and held < self._small and room - held - waiting >= room // 4

    def _split(self, unit: Unit, room: int) -> None:
        used = sum(extent.tokens for extent in (self._held, self._leads) if extent)
        parts = self._finer(unit, max(1, room - used))
        if not parts and _size(self.text, unit.start, unit.end) > PIECE_BYTES:
            parts = self._halves(unit)
        if parts:
            self.stack += reversed(parts)
        elif self._leads:
            self.stack.append(unit)
            self._hold(self.leads, self._leads)
            self._emit()
        else:
            self._hold([unit], self._join(None, unit))
            self._emit()

    def _finish(self) -> None:
        if self._leads and (self._held is None or self._fits(self._join(self._held, self._leads))):
            self._hold(self.leads, self._leads)
        self._emit()

    def _hold(self, units: Sequence[Unit], extent: Extent) -> None:
        self.held += units
        self._held = self._join(self._held, extent)
        self.leads, self._leads = [], None

    def _emit(self) -> None:
        """Makes the held units a passage; what proves too long by the model's own count goes back to the stack."""
        while True:
            held = self._held = self._extent(self.held)
            text = self.head.of(held.path)[0] + self.text[held.start : held.end]
            tokens = self.tokenizer.count([text])[0]
            if tokens <= self.budget:
                break
            self._shrink(tokens - self.budget)
        self.passages.append(
            Passage(
                ordinal=len(self.passages),
                text=text,
                hash=digest(text),
                start=held.start,
                end=held.end,
                headings=held.path,
                tokens=tokens,
            )
        )
        self.held, self._held = [], None

    def _shrink(self, excess: int) -> None:
        self.stack += reversed(self.leads)
        self.leads, self._leads = [], None
        if len(self.held) == 1:
            unit = self.held[0]
            parts = self._finer(unit, max(1, unit.tokens // 2)) or self._halves(unit)
            if not parts:
                raise WindowTooSmall(f"a passage size of {self.budget} tokens is too small for one character")
            self.held = parts[:1]
            self.stack += reversed(parts[1:])
            return
        while excess > 0 and len(self.held) > 1:
            unit = self.held.pop()
            excess -= max(1, unit.tokens)
            self.stack.append(unit)

    def _finer(self, unit: Unit, limit: int) -> list[Unit]:
        """Sentences, lines or windows of at most ``limit`` tokens; nothing when it cannot be cut further."""
        parts: list[Unit] = []
        for start, end in slabs(self.text, unit.start, unit.end, lines=unit.lines):
            piece = self.text[start:end]
            before = (0, 0)
            for cut in finer_cuts(piece, self.tokenizer.spans(piece), limit, lines=unit.lines):
                parts += self._part(unit, start + before[0], start + cut[0], cut[1] - before[1])
                before = cut
        return parts if len(parts) > 1 else []

    def _halves(self, unit: Unit) -> list[Unit]:
        if unit.end - unit.start < 2:
            return []
        middle = whole_character(self.text, (unit.start + unit.end) // 2, unit.start)
        tokens = (unit.tokens + 1) // 2
        return self._part(unit, unit.start, middle, tokens) + self._part(unit, middle, unit.end, tokens)

    def _part(self, unit: Unit, start: int, end: int, tokens: int) -> list[Unit]:
        start, end = strip(self.text, start, end)
        if start == end:
            return []
        return [replace(unit, start=start, end=end, tokens=tokens, heading=False, lead=False)]

    @property
    def _small(self) -> int:
        return self.budget // 4

    def _room(self, path: tuple[str, ...]) -> int:
        return self.budget - self.head.of(path)[1]

    def _fits(self, extent: Extent) -> bool:
        return extent.tokens <= self._room(extent.path) and extent.size <= PIECE_BYTES

    def _belongs(self, unit: Unit) -> bool:
        """Whether ``unit`` may share the passage held: same section, or a small one under the same parent."""
        held = self._held
        if held is None or held.section == unit.section:
            return True
        small = held.tokens < self._small or self.sections[unit.section] < self._small
        return small and len(_common(held.path, unit.path)) >= len(held.path) - 1

    def _extent(self, units: Sequence[Unit]) -> Extent:
        extent = self._join(None, units[0])
        for unit in units[1:]:
            extent = self._join(extent, unit)
        return extent

    def _join(self, extent: Extent | None, other: Unit | Extent) -> Extent:
        size = other.size if isinstance(other, Extent) else _size(self.text, other.start, other.end)
        path, heading = other.path, other.heading
        if extent is None:
            start, tokens = other.start, other.tokens
        else:
            start, tokens = extent.start, extent.tokens + other.tokens
            size += extent.size + _size(self.text, extent.end, other.start)
            if not extent.heading:
                # A heading without text of its own says nothing about the path of the passage.
                path = extent.path if other.heading else _common(extent.path, other.path)
                heading = False
        return Extent(
            start=start, end=other.end, tokens=tokens, size=size, path=path, section=other.section, heading=heading
        )


def _common(one: tuple[str, ...], two: tuple[str, ...]) -> tuple[str, ...]:
    length = 0
    while length < min(len(one), len(two)) and one[length] == two[length]:
        length += 1
    return one[:length]


def _size(text: str, start: int, end: int) -> int:
    return len(text[start:end].encode("utf-8", "surrogatepass"))
