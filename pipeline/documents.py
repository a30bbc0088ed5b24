"""The values that travel through the pipeline. Frozen, keyword-only, no behaviour with side effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any


class Kind(StrEnum):
    """What was uploaded."""

    ARTICLE = "article"
    EPISODE = "episode"


class Lane(IntEnum):
    """``LIVE``: somebody is waiting. ``BACKFILL``: nobody is. Lower goes first."""

    LIVE = 0
    BACKFILL = 1


class State(StrEnum):
    """Where the newest version of a document stands."""

    PENDING = "pending"
    SEARCHABLE = "searchable"
    PARKED = "parked"
    DELETED = "deleted"
    LEASED = "leased"
    CONSUMED = "consumed"


@dataclass(frozen=True, kw_only=True)
class Block:
    """One part of an event: ``text``, or a medium named by its MIME type and a reference."""

    type: str
    text: str | None = None
    mime: str | None = None
    ref: str | None = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened in an episode, with its own time and source."""

    at: datetime
    source: str = ""
    user_id: str | None = None
    agent_id: str | None = None
    blocks: tuple[Block, ...] = ()

    @property
    def text(self) -> str:
        """The text blocks in order; media add nothing."""
        return "\n".join(b.text for b in self.blocks if b.type == "text" and b.text)


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One validated upload: exactly one of ``body`` and ``events`` is set."""

    key: str
    body: str | None = None
    events: tuple[Event, ...] | None = None
    title: str = ""
    domain: str = "default"
    keywords: tuple[str, ...] = ()
    summary: str = ""
    covers: tuple[str, ...] = ()
    when_to_retrieve: str = ""
    source: str = ""
    revision: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return Kind.ARTICLE if self.events is None else Kind.EPISODE


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of body text that fits the model's window.

    ``start`` and ``end`` are character offsets into the body text; ``text`` is what is embedded:
    title and heading path, then ``body[start:end]``. ``hash`` is over ``text``.
    """

    ordinal: int
    text: str
    hash: str
    start: int
    end: int
    headings: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, kw_only=True)
class VersionText:
    """What one immutable version says: the input of every text rule."""

    title: str
    body: str | None = None
    events: tuple[Event, ...] | None = None

    @property
    def body_text(self) -> str:
        """The article's body, or the episode's event texts in order, one blank line apart.

        Never a summary, never keywords, never a made-up description of a medium.
        """
        if self.events is None:
            return self.body or ""
        return "\n\n".join(t for t in (e.text for e in self.events) if t)


@dataclass(frozen=True, kw_only=True)
class Hashes:
    """``text``: title and body or events. ``meta``: all the rest, which embeds nothing."""

    text: str
    meta: str


@dataclass(frozen=True, kw_only=True)
class Received:
    """What became of one upload. ``changed`` is False when its text was that of the newest version."""

    document: int
    key: str
    version: int
    changed: bool
    state: State
    lane: Lane


@dataclass(frozen=True, kw_only=True)
class DocumentView:
    """A document as ``GET`` shows it: ``state`` of the newest version, ``live_version`` of the served one."""

    id: int
    key: str
    kind: Kind
    version: int
    state: State
    live_version: int | None
    fingerprint: str | None
    domain: str
    title: str
    keywords: list[str]
    summary: str
    covers: list[str]
    when_to_retrieve: str
    source: str
    revision: int | None
    metadata: dict[str, Any]
    writer: str | None
    passages: int
    error: str | None
    updated_at: datetime
