"""Swap: the building generation serves when nothing would be lost and it finds what it should."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.errors import Conflict
from pipeline.fingerprint import Space
from pipeline.generation import Coverage, Generation, Status
from pipeline.generations import Generations
from pipeline.ports import Embedder, VectorStore
from pipeline.recall_check import RecallCheck, check_recall

# So few missing documents, and no more than a tenth of the corpus, are laggards: the rest can be judged already.
LAGGARDS = 100


class Swaps(Protocol):
    """What is missing, and the swap, in the ledger."""

    def coverage(self, generation: int) -> Coverage: ...
    def served(self, generation: int, limit: int = 10_000) -> int: ...
    def behind(self, serving: int, other: int, limit: int = 1000, settle: float = 0.0) -> int: ...
    def swap(self, other: int, *, accept_missing: bool = False, settle: float = 0.0) -> Generation: ...
    def latest_draining(self) -> Generation: ...


class GateNotes(Protocol):
    """What the gate writes on a generation."""

    def close_in(self, generation: int) -> None: ...
    def catch_up(self, generation: int, after: float = 60.0) -> bool: ...
    def hold(self, generation: int, reason: str | None) -> None: ...
    def note_check(self, generation: int, check: dict[str, Any]) -> None: ...
    def want_comparison(self, generation: int) -> None: ...


class Calibrated(Protocol):
    """Whether a generation's relevance means the same as that of the serving one."""

    def __call__(self, generation: Generation, /) -> bool: ...


def needs_no_calibration(_generation: Generation) -> bool:
    """Where relevance is not fitted per generation."""
    return True


@dataclass(frozen=True, kw_only=True)
class SwapLimits:
    """Seconds, and the least share of the serving generation's self-retrieval that a new one must reach.

    ``settle_seconds``: how long a document must have been in the store before searches can be trusted to see it.
    ``patience_seconds``: how long one tick looks for the moment without a laggard.
    """

    min_self_retrieval: float = 0.8
    probes: int = 64
    settle_seconds: float = 1.0
    patience_seconds: float = 3.0
    laggards: int = LAGGARDS


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What one look at the gate led to: the generation that serves now, or what is wanted before one can."""

    swapped: Generation | None = None
    check: bool = False
    compare: bool = False


def try_swap(
    generations: Generations,
    swaps: Swaps,
    notes: GateNotes,
    store: VectorStore,
    limits: SwapLimits,
    calibrated: Calibrated = needs_no_calibration,
) -> Tick:
    """Swaps the building generation in when its gate is open. What holds it is written on the generation.

    The gate: the recall check passed, a comparison with the store found nothing missing, relevance is calibrated,
    and nothing served would vanish or grow older (counted again inside the swap).
    """
    building = next((g for g in generations.active() if g.status is Status.BUILDING), None)
    if building is None:
        return Tick()
    serving = generations.serving()
    lag = 0 if serving is None else swaps.behind(serving.id, building.id, settle=limits.settle_seconds)
    coming = _coming(swaps, notes, building, lag)
    few = limits.laggards if serving is None else max(1, swaps.served(serving.id) // 10)
    if coming > min(few, limits.laggards):
        return Tick()
    if building.recall_check is None:
        return Tick(check=True)
    if building.compared is None:
        notes.want_comparison(building.id)
        return Tick(compare=True)
    reason = _objection(generations, store, building, limits, calibrated)
    if reason is not None:
        notes.hold(building.id, reason)
        return Tick()
    if lag:
        notes.close_in(building.id)
    return Tick(swapped=_swap_in_time(swaps, notes, building, serving, limits))


def _coming(swaps: Swaps, notes: GateNotes, building: Generation, lag: int) -> int:
    """Of the documents that are missing, those that are not parked. Forgotten ones among them are looked for."""
    parked = swaps.coverage(building.id).parked if lag else 0
    coming = max(0, lag - parked)
    if coming:
        notes.catch_up(building.id)
    elif parked:
        notes.hold(building.id, _missing(lag, parked))
    return coming


def _missing(lag: int, parked: int) -> str:
    return f"{lag} documents are not there yet" + (f", {parked} of them parked" if parked else "")


def _objection(
    generations: Generations, store: VectorStore, building: Generation, limits: SwapLimits, calibrated: Calibrated
) -> str | None:
    """What speaks against the generation apart from documents that are still on their way."""
    wrong = RecallCheck(**(building.recall_check or {})).verdict(limits.min_self_retrieval)
    if wrong is not None:
        return wrong
    expected, found = generations.expected_rows(building.id), store.admin().count(building.collection)
    if found < expected:
        return f"{expected - found} of {expected} vectors are missing from Milvus"
    return None if calibrated(building) else "its relevance is not calibrated yet"


def _swap_in_time(
    swaps: Swaps, notes: GateNotes, building: Generation, serving: Generation | None, limits: SwapLimits
) -> Generation | None:
    """Uploads never stop: the swap takes the first moment at which nothing is missing."""
    until = time.monotonic() + limits.patience_seconds
    while True:
        lag = 0 if serving is None else swaps.behind(serving.id, building.id, settle=limits.settle_seconds)
        if not lag:
            try:
                return swaps.swap(building.id, settle=limits.settle_seconds)
            except Conflict:
                lag = 1  # an upload was faster
        if time.monotonic() >= until:
            break
        time.sleep(0.05)
    notes.hold(building.id, _missing(lag, swaps.coverage(building.id).parked))
    return None


def run_check(
    generations: Generations,
    notes: GateNotes,
    store: VectorStore,
    embedder_for: Callable[[Space], Embedder | None],
    limits: SwapLimits,
    more_time: Callable[[], bool] = lambda: True,
) -> RecallCheck | None:
    """Checks the building generation against the serving one and stores the figures on it.

    None, and nothing is stored, when there is nothing to check or this process cannot encode for it.
    """
    building = next((g for g in generations.active() if g.status is Status.BUILDING), None)
    if building is None or building.recall_check is not None or embedder_for(building.space) is None:
        return None
    serving = generations.serving()
    probes = generations.probes(building.id, limits.probes)
    if not probes and serving is not None and generations.probes(serving.id, 1):
        return None
    check = check_recall(probes, store, building, serving, embedder_for, more_time)
    notes.note_check(building.id, check.to_json())
    return check


def swap_by_hand(swaps: Swaps, notes: GateNotes, generation: int, *, accept_missing: bool = False) -> Generation:
    """Makes a building or draining generation serve, whatever its recall check says. Raises Conflict, NotFound.

    What it lacks is hurried on, so that the same command succeeds a little later.
    """
    try:
        return swaps.swap(generation, accept_missing=accept_missing)
    except Conflict as error:
        if "behind" in error.fields:
            notes.close_in(generation)
            notes.catch_up(generation, after=0.0)
        raise


def roll_back(swaps: Swaps, notes: GateNotes, *, accept_missing: bool = False) -> Generation:
    """Makes the generation that served before serve again; it was written to since, so nothing is lost."""
    return swap_by_hand(swaps, notes, swaps.latest_draining().id, accept_missing=accept_missing)
