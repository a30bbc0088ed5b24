"""Generations: one is filled, checked, swapped in when nothing would be lost, and the old one retired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.errors import Conflict
from pipeline.fingerprint import Space
from pipeline.generation import Coverage, Generation, Status
from pipeline.ports import Embedder, VectorStore
from pipeline.recall_check import Probe, RecallCheck, check_recall

# Whom the encoder serves first: those that answer lookups, then the one being built, then the one on its way out.
_ORDER = {Status.SERVING: 0, Status.BUILDING: 1, Status.DRAINING: 2}
# When so few documents are missing, they go to the live lane.
LAGGARDS = 100


class Generations(Protocol):
    """The generation rows of the ledger."""

    def active(self) -> list[Generation]: ...
    def serving(self) -> Generation | None: ...
    def emptied(self, generation: int) -> None: ...
    def rebuilt(self) -> None: ...
    def expected_rows(self, generation: int) -> int: ...
    def probes(self, generation: int, limit: int) -> list[Probe]: ...


class Swaps(Protocol):
    """Coverage and status changes, in the ledger."""

    def coverage(self, generation: int) -> Coverage: ...
    def behind(self, serving: int, other: int, limit: int = 1000) -> int: ...
    def close_in(self, generation: int) -> None: ...
    def hold(self, generation: int, reason: str | None) -> None: ...
    def swap(self, other: int, *, accept_missing: bool = False) -> Generation: ...
    def note_check(self, generation: int, check: dict[str, Any]) -> None: ...


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
    def fill_page(self, generation: int, cursor: int, page: int, cap: int) -> tuple[int, int]: ...


@dataclass(frozen=True, kw_only=True)
class SwapLimits:
    """Seconds, and the least share of titles that must find their own document."""

    soak_seconds: float = 3600.0
    quiet_seconds: float = 960.0
    min_self_retrieval: float = 0.7
    probes: int = 64


def in_order(generations: Sequence[Generation]) -> list[Generation]:
    """Serving, building, draining: the order of their claim to the encoder."""
    return sorted(generations, key=lambda g: (_ORDER.get(g.status, 9), g.id))


def fill(jobs: Jobs, job: dict[str, Any], active: Sequence[Generation], page: int, cap: int) -> int:
    """Takes one fill job a page further; returns how many documents it queued.

    Done when a scan from the very beginning finds nothing to queue: the end of the cursor alone proves nothing,
    documents that arrived or failed behind it would be missed.
    """
    generation = int(job["name"].split(":")[1])
    if generation not in {g.id for g in active}:
        jobs.advance_job(job["name"], job["token"], job["cursor"], job["state"], finished=True)
        return 0
    cursor, queued = jobs.fill_page(generation, job["cursor"], page, cap)
    at_end = queued == 0 and cursor == 0
    finished = at_end and job["cursor"] == 0
    # Waiting for back-pressure, or for the queued documents to get their rows, needs no hurry.
    delay = 0.0 if queued or at_end else 1.0
    jobs.advance_job(job["name"], job["token"], cursor, job["state"], delay, finished=finished)
    return queued


def try_swap(
    generations: Generations, swaps: Swaps, store: VectorStore, limits: SwapLimits
) -> tuple[Generation | None, bool]:
    """Swaps the building generation in when its gate is open; returns (what serves now, a check is wanted).

    The gate: nothing served would vanish or grow older (counted again inside the swap), the collection holds
    what the ledger counts, and the recall check passed. What holds it is written on the generation.
    """
    building = next((g for g in generations.active() if g.status is Status.BUILDING), None)
    serving = generations.serving()
    if building is None:
        return None, False
    lag = 0 if serving is None else swaps.behind(serving.id, building.id)
    if 0 < lag <= LAGGARDS:
        swaps.close_in(building.id)
    if building.recall_check is None:
        # The check runs on the encoder's queue; it needs the whole corpus, but not the very last upload.
        return None, lag <= LAGGARDS
    check = RecallCheck(**building.recall_check)
    reason = check.verdict(limits.min_self_retrieval) or _difference(generations, store, building)
    if reason is None and lag:
        parked = swaps.coverage(building.id).parked
        reason = f"{lag} documents are not there yet" + (f", {parked} of them parked" if parked else "")
    swaps.hold(building.id, reason)
    if reason is not None:
        return None, False
    try:
        return swaps.swap(building.id), False
    except Conflict:
        return None, False  # an upload was faster; the next tick tries again


def _difference(generations: Generations, store: VectorStore, building: Generation) -> str | None:
    expected, found = generations.expected_rows(building.id), store.admin().count(building.collection)
    return None if found >= expected else f"{expected - found} of {expected} vectors are missing from Milvus"


def run_check(
    generations: Generations,
    swaps: Swaps,
    store: VectorStore,
    embedder_for: Callable[[Space], Embedder | None],
    limits: SwapLimits,
) -> RecallCheck | None:
    """Checks the building generation against the serving one and stores the figures on it."""
    building = next((g for g in generations.active() if g.status is Status.BUILDING), None)
    if building is None or building.recall_check is not None:
        return None
    serving = generations.serving()
    probes = generations.probes(building.id, limits.probes)
    check = check_recall(probes, store, building, serving, embedder_for)
    swaps.note_check(building.id, check.to_json())
    return check


def retire_old(
    generations: Generations, retirement: Retirement, store: VectorStore, limits: SwapLimits
) -> list[Generation]:
    """Ends the soak of draining generations and drops those that have been quiet long enough."""
    for generation in generations.active():
        if generation.status is Status.DRAINING:
            retirement.retire(generation.id, soak=limits.soak_seconds)
    gone = retirement.retiring(limits.quiet_seconds)
    for generation in gone:
        store.admin().drop(generation.collection)
        retirement.dropped(generation.id)
    return gone
