"""Reconcile: PostgreSQL and Milvus are compared both ways, and each difference is repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.fingerprint import parse_passage_key, passage_key
from pipeline.generation import Generation
from pipeline.generations import Jobs
from pipeline.ports import VectorStore
from pipeline.work import Complete


class Reconciling(Protocol):
    """The ledger's side of the comparison."""

    def due(self, every_seconds: float) -> None: ...
    def served_page(self, generation: int, after: int, limit: int) -> list[Complete]: ...
    def repair(self, generation: int, documents: Sequence[int]) -> int: ...
    def note(self, generation: int, found: dict[str, int]) -> None: ...
    def dead(self, generation: int, keys: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]: ...


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Documents checked, documents with missing vectors, dead keys deleted."""

    documents: int
    missing: int
    orphans: int


def reconcile(
    jobs: Jobs,
    reconciling: Reconciling,
    store: VectorStore,
    active: Sequence[Generation],
    seconds: float,
    more_time: Callable[[], bool] = lambda: True,
) -> list[Difference]:
    """Runs the due reconcile jobs; each page's cursor is committed, so a crash goes on where it was.

    What a comparison that a swap waits for found is noted on its generation.
    """
    known = {g.id: g for g in active}
    done = []
    while more_time() and (job := jobs.take_job("reconcile:", seconds)) is not None:
        generation = known.get(int(job["name"].split(":")[1]))
        if generation is None:
            jobs.advance_job(job["name"], job["token"], 0, job["state"], finished=True)
            continue
        page = reconciling.served_page(generation.id, job["cursor"], 500)
        # A job that starts over keeps nothing of its last run but what it is for.
        kept = job["state"] if job["cursor"] else {k: v for k, v in job["state"].items() if k == "swap"}
        state = {"documents": 0, "missing": 0, "orphans": 0, **kept}
        if page:
            missing = incomplete(store, generation, page)
            if missing:
                reconciling.repair(generation.id, missing)
            state |= {"documents": state["documents"] + len(page), "missing": state["missing"] + len(missing)}
            jobs.advance_job(job["name"], job["token"], page[-1].document, state)
            continue
        state["orphans"] = delete_orphans(reconciling, store, generation)
        wanted = state.pop("swap", False)
        if jobs.advance_job(job["name"], job["token"], 0, state, finished=True):
            if wanted:
                reconciling.note(generation.id, state)
            done.append(Difference(**state))
    return done


def incomplete(store: VectorStore, generation: Generation, page: Sequence[Complete]) -> list[int]:
    """Documents of which a key is missing in two Strong reads: one read alone may have met a flip."""
    suspects = _without_all_keys(store, generation, page)
    return [c.document for c in _without_all_keys(store, generation, suspects)] if suspects else []


def _without_all_keys(store: VectorStore, generation: Generation, page: Sequence[Complete]) -> list[Complete]:
    keys = {passage_key(c.document, c.version, i): c for c in page for i in range(c.total)}
    found = store.fetch(generation.spec, list(keys))
    lost = {keys[k].document for k in keys if k not in found}
    return [c for c in page if c.document in lost]


def delete_orphans(reconciling: Reconciling, store: VectorStore, generation: Generation) -> int:
    """Deletes the keys that are dead for ever; returns how many there were."""
    orphans = 0
    for page in list(store.admin().keys(generation.collection)):
        dead = reconciling.dead(generation.id, [parse_passage_key(k) for k in page])
        if dead:
            store.delete(generation.spec, [passage_key(*k) for k in dead])
        orphans += len(dead)
    return orphans
