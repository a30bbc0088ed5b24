"""The work rows as the stages see them: what is claimed, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.documents import Lane, Passage, VersionText


@dataclass(frozen=True, kw_only=True)
class ClaimedDocument:
    """One prepare job under a claim: the newest version of a document and its text."""

    job: int
    token: int
    document: int
    tenant: str
    version: int
    lane: Lane
    deleted: bool
    text: VersionText | None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The passages of one document version under one generation's rule; None: this process cannot cut them."""

    generation: int
    passages: Sequence[Passage] | None


@dataclass(frozen=True, kw_only=True)
class ClaimedPassage:
    """One passage under a claim, with all that its vector row needs.

    ``live_version`` and ``live_total`` name the keys whose vectors may be copied when the hash is the same.
    """

    id: int
    generation: int
    document: int
    version: int
    ordinal: int
    hash: str
    text: str
    start: int
    end: int
    headings: tuple[str, ...]
    tokens: int
    lane: Lane
    tenant: str
    kind: str
    domain: str
    live_version: int | None
    live_total: int | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Passages claimed together; ``token`` is the fence, ``after`` the last tenant served."""

    token: int
    generation: int
    passages: tuple[ClaimedPassage, ...]
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Complete:
    """A version whose passages are all written; ``total`` keys must be read back before it may serve."""

    generation: int
    document: int
    version: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Trash:
    """Keys of a dead version: ``{document}.{version}.0`` … ``total − 1``."""

    id: int
    generation: int
    document: int
    version: int
    total: int
    passes: int


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """What one group cost: for rates, fill and totals."""

    passages: int
    copied: int
    tokens: int
    slots: int
    seconds: float
