"""Stored events of an episode → what an answer says of it. Pure; media are counted by type, never described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.content import whole_characters
from pipeline.remembered import RawEvents
from pipeline.terms import normalise

LINE_CHARACTERS = 160
# Names of sources that are worth reading one by one.
SOURCES = 3


@dataclass(frozen=True, kw_only=True)
class EpisodeView:
    """``lines``: the first lines of real text; ``media``: MIME type → how many; ``texts``: of each event, in order."""

    at: str
    source: str
    summary: str
    lines: tuple[str, ...]
    media: Mapping[str, int]
    texts: tuple[str, ...]

    @property
    def event_count(self) -> int:
        """All of them, those without text included."""
        return len(self.texts)

    def stretch(self, start: int, end: int) -> str:
        """Characters ``start`` … ``end`` of the body text."""
        return self._body[start:end]

    def events_between(self, start: int, end: int) -> tuple[int, ...]:
        """The indices of the events that lie within these characters of the body text."""
        found, at = [], 0
        for index, text in enumerate(self.texts):
            if not text:
                continue
            if at < end and at + len(text) > start:
                found.append(index)
            at += len(text) + len("\n\n")
        return tuple(found)

    def saying(self, strings: Iterable[str]) -> tuple[int, ...]:
        """The indices of the events whose text holds one of these normalised strings."""
        wanted = tuple(strings)
        # Most texts need no normalising to be found in, and a long episode has thousands.
        plain = tuple(i for i, text in enumerate(self._folded) if any(s in text for s in wanted))
        return plain or tuple(i for i, text in enumerate(self.texts) if any(s in normalise(text) for s in wanted))

    # Made once: a view is kept as long as its version is, and a long episode is asked again and again.
    @cached_property
    def _body(self) -> str:
        return "\n\n".join(t for t in self.texts if t)

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(text.casefold() for text in self.texts)


def view_of(events: RawEvents, fallback_source: str = "", lines: int = 3) -> EpisodeView:
    """The view of stored events; ``fallback_source`` where no event names one."""
    texts = tuple(map(text_of, events))
    media: Counter[str] = Counter()
    for event in events:
        media.update(str(b.get("mime") or b["type"]) for b in event["blocks"] if b["type"] != "text")
    first = next((t for t in texts if t.strip()), "")
    sources = list(dict.fromkeys(s for e in events if (s := e.get("source"))))
    return EpisodeView(
        at=str(events[0]["at"]) if events else "",
        source=_listed(sources) or fallback_source,
        summary=_first_lines([first], 1)[0] if first else "",
        lines=tuple(_first_lines(texts, lines)),
        media=dict(media.most_common()),
        texts=texts,
    )


def text_of(event: Mapping[str, Any]) -> str:
    """The text blocks of one stored event in order, as they are embedded."""
    return "\n".join(b["text"] for b in event["blocks"] if b["type"] == "text" and b.get("text"))


def clipped(line: str, most: int = LINE_CHARACTERS) -> str:
    """The line, or its beginning and an ellipsis; never cut inside a character."""
    line = " ".join(line.split())
    return line if len(line) <= most else line[: whole_characters(line, most)].rstrip() + "…"


def _first_lines(texts: Iterable[str], most: int) -> list[str]:
    found: list[str] = []
    for text in texts:
        for line in text.splitlines():
            if line.strip():
                found.append(clipped(line))
            if len(found) == most:
                return found
    return found


def _listed(sources: Sequence[str]) -> str:
    return "+".join(sources[:SOURCES]) + ("…" if len(sources) > SOURCES else "")
