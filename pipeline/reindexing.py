"""Reindex on request: a fingerprint becomes complete, also one that was dropped before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.errors import Conflict
from pipeline.generation import Generation, Status


class ReindexState(StrEnum):
    """What became of the request. ``kept``: complete vectors are there, a swap is all it takes."""

    STARTED = "started"
    BUILDING = "building"
    FRESH = "fresh"
    KEPT = "kept"


class CatchingUp(Protocol):
    """Looking for what a generation lacks, in the ledger."""

    def catch_up(self, generation: int, after: float = 60.0) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Reindex:
    """The generation that is wanted, and what is done for it."""

    state: ReindexState
    generation: Generation


_STATES = {
    Status.BUILDING: ReindexState.BUILDING,
    Status.SERVING: ReindexState.FRESH,
    Status.DRAINING: ReindexState.KEPT,
}


def reindex(known: set[int], ensure: Callable[[], Generation | None], catching_up: CatchingUp) -> Reindex:
    """Starts the generation that ``ensure`` makes, or has one that is there looked over for forgotten documents.

    ``known``: the generations there were before. Raises Conflict while one of this fingerprint is being dropped.
    """
    generation = ensure()
    if generation is None or generation.status is Status.RETIRING:
        raise Conflict("vectors of this fingerprint are being dropped; ask again when they are gone")
    if generation.id not in known:
        return Reindex(state=ReindexState.STARTED, generation=generation)
    catching_up.catch_up(generation.id, after=0.0)
    return Reindex(state=_STATES[generation.status], generation=generation)
