"""Retire: the keys of dead versions leave the vector store, and stay gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from pipeline.errors import CollectionGone
from pipeline.fingerprint import passage_key
from pipeline.generation import Generation
from pipeline.ports import VectorStore
from pipeline.work import Trash


class Trashes(Protocol):
    """Dead versions in the ledger."""

    def due_trash(self, limit: int = 200) -> list[Trash]: ...
    def trash_done(self, ids: Sequence[int], again_after: float) -> None: ...


def empty_trash(
    trashes: Trashes, store: VectorStore, generations: Mapping[int, Generation], again_after: float, limit: int = 200
) -> int:
    """Deletes the keys of due versions by primary key; returns how many versions it dealt with."""
    due = trashes.due_trash(limit)
    for generation in sorted({t.generation for t in due}):
        if generation not in generations:
            continue
        mine = [t for t in due if t.generation == generation]
        keys = [passage_key(t.document, t.version, i) for t in mine for i in range(t.total)]
        # Without a collection nothing is left to delete; a lost one is made again by the sweep.
        with suppress(CollectionGone):
            store.delete(generations[generation].spec, keys)
        trashes.trash_done([t.id for t in mine], again_after)
    return len(due)
