"""Sweep: whatever a lost message, a lost worker or a lost collection left behind is found and set going again."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.embed import Passages
from pipeline.errors import CollectionGone
from pipeline.generation import Generation
from pipeline.generations import Generations, Jobs, fill
from pipeline.ports import VectorStore
from pipeline.retire import empty_trash
from pipeline.storing import confirm
from pipeline.work import Complete, Trash

_TASK_OF = {"gpu": "wellhead.drain", "prepare": "wellhead.prepare", "llm": "wellhead.describe"}


class Sweeping(Protocol):
    """What the sweep asks the ledger."""

    def tick(self, every: float) -> bool: ...
    def lapse_claims(self, max_lapses: int, dead_pids: Sequence[int] = ()) -> None: ...
    def holders(self, host: str) -> list[int]: ...
    def complete_unflipped(self, limit: int = 200) -> list[Complete]: ...
    def pending(self) -> dict[str, int]: ...
    def requeue_forgotten(self, minutes: int = 60) -> int: ...
    def due_trash(self, limit: int = 200) -> list[Trash]: ...
    def trash_done(self, ids: Sequence[int], again_after: float) -> None: ...


@dataclass(frozen=True, kw_only=True)
class SweepLimits:
    """Bounds of one sweep; times in seconds."""

    max_lapses: int = 2
    tick_seconds: float = 0.0
    claim_longest_seconds: float = 900.0
    flip_grace_seconds: float = 10.0
    fill_page: int = 500
    pending_cap: int = 20_000
    job_seconds: float = 60.0


def sweep(
    sweeping: Sweeping, generations: Generations, passages: Passages, store: VectorStore, limits: SweepLimits
) -> list[str]:
    """One tick; returns the tasks to ring: those whose queue has due work.

    A second sweep within ``tick_seconds`` does nothing: two beats have the effect of one.
    """
    if not sweeping.tick(limits.tick_seconds):
        return []
    sweeping.lapse_claims(limits.max_lapses, [pid for pid in sweeping.holders(socket.gethostname()) if not _alive(pid)])
    active = {g.id: g for g in generations.active()}
    for complete in sweeping.complete_unflipped():
        try:
            confirm(passages, store, active[complete.generation], complete, limits.flip_grace_seconds)
        except CollectionGone:
            continue  # the heal tick makes it again and embeds everything
    sweeping.requeue_forgotten()
    generations.rebuilt()
    empty_trash(sweeping, store, active, limits.claim_longest_seconds)
    return [_TASK_OF[queue] for queue, count in sweeping.pending().items() if count]


def long_jobs(jobs: Jobs, generations: Generations, limits: SweepLimits, more_time: Callable[[], bool]) -> int:
    """Takes long jobs further until none is due or the time is up; returns how many documents were queued."""
    queued = 0
    while more_time() and (job := jobs.take_job("fill:", limits.job_seconds)) is not None:
        queued += fill(jobs, job, generations.active(), limits.fill_page, limits.pending_cap)
    return queued


def heal(generations: Generations, store: VectorStore) -> list[int]:
    """Makes missing collections again and starts the rebuilding of emptied ones; returns their generations."""
    healed = []
    existing = set(store.admin().collections())
    for generation in generations.active():
        missing = generation.collection not in existing
        store.create(generation.spec)
        expected = generations.expected_rows(generation.id)
        if expected and (missing or _mostly_empty(store, generation, expected)):
            generations.emptied(generation.id)
            healed.append(generation.id)
    return healed


def _mostly_empty(store: VectorStore, generation: Generation, expected: int) -> bool:
    """Fewer than half of the vectors that must be there, counted twice: whoever made the collection again may have
    written a few already. Smaller losses are reconcile's.
    """
    return all(store.admin().count(generation.collection) < (expected + 1) // 2 for _ in range(2))


def _alive(pid: int) -> bool:
    """Does a process of this host still run? Its claims lapse at once when it does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
