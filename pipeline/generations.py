"""Generations: one is filled with the whole corpus, and the old one retired. The swap between is in ``swapping``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pipeline.generation import Generation, Status
from pipeline.ports import VectorStore
from pipeline.recall_check import Probe

# Whom the encoder serves first: those that answer lookups, then the one being built, then the one on its way out.
_ORDER = {Status.SERVING: 0, Status.BUILDING: 1, Status.DRAINING: 2}


class Generations(Protocol):
    """The generation rows of the ledger."""

    def active(self) -> list[Generation]: ...
    def serving(self) -> Generation | None: ...
    def emptied(self, generation: int) -> None: ...
    def rebuilt(self) -> None: ...
    def expected_rows(self, generation: int) -> int: ...
    def probes(self, generation: int, limit: int) -> list[Probe]: ...


class Retirement(Protocol):
    """The way out of a generation, in the ledger."""

    def retire(self, generation: int, *, now: bool = False, soak: float = 0.0) -> bool: ...
    def retiring(self, quiet: float) -> list[Generation]: ...
    def dropped(self, generation: int) -> None: ...


class Jobs(Protocol):
    """Long work under a row with a token and a cursor."""

    def take_job(self, prefix: str, seconds: float) -> dict[str, Any] | None: ...
    def advance_job(
        self, name: str, token: int, cursor: int, state: dict[str, Any], delay: float = 0.0, *, finished: bool = False
    ) -> bool: ...
    def fill_page(self, generation: int, cursor: int, page: int, cap: int) -> tuple[int, int, int]: ...


def in_order(generations: Sequence[Generation]) -> list[Generation]:
    """Serving, building, draining: the order of their claim to the encoder.

    One that is about to serve comes first: were every upload served by the old one before, the new one would be a
    step behind for ever, and under steady uploads the swap would never come.
    """
    return sorted(generations, key=lambda g: (not g.closing, _ORDER.get(g.status, 9), g.id))


def fill(jobs: Jobs, job: dict[str, Any], active: Sequence[Generation], page: int, cap: int) -> int:
    """Takes one fill job a page further; returns how many documents it queued.

    Done when a scan from the very beginning finds nothing that lacks: the end of the cursor alone proves nothing,
    documents that arrived or failed behind it would be missed.
    """
    generation = int(job["name"].split(":")[1])
    if generation not in {g.id for g in active}:
        jobs.advance_job(job["name"], job["token"], job["cursor"], job["state"], finished=True)
        return 0
    cursor, found, queued = jobs.fill_page(generation, job["cursor"], page, cap)
    at_end = found == 0 and cursor == 0
    finished = at_end and job["cursor"] == 0
    # Waiting for back-pressure, or for the queued documents to get their rows, needs no hurry.
    delay = 0.0 if found or finished else 1.0
    jobs.advance_job(job["name"], job["token"], cursor, job["state"], delay, finished=finished)
    return queued


def retire_old(
    generations: Generations, retirement: Retirement, store: VectorStore, soak_seconds: float, quiet_seconds: float
) -> list[Generation]:
    """Ends the soak of draining generations; drops those, and given up ones, that have been quiet long enough."""
    for generation in generations.active():
        if generation.status is Status.DRAINING:
            retirement.retire(generation.id, soak=soak_seconds)
    gone = retirement.retiring(quiet_seconds)
    for generation in gone:
        store.admin().drop(generation.collection)
        retirement.dropped(generation.id)
    return gone
