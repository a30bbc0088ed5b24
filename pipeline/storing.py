"""Writing a group to the store, and letting a version serve once all of it was read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pipeline.encode import reason
from pipeline.errors import BadVector, CollectionGone, InfrastructureDown, InvalidInput
from pipeline.fingerprint import passage_key
from pipeline.generation import Generation
from pipeline.loads import Load
from pipeline.ports import VectorRow, VectorStore
from pipeline.work import ClaimedPassage, Complete


class Flips(Protocol):
    """Whoever can make a version live."""

    def flip(self, complete: Complete, missing: Sequence[int], grace: float) -> bool: ...


def upsert(
    store: VectorStore, load: Load, rows: Sequence[VectorRow], passages: list[ClaimedPassage]
) -> list[ClaimedPassage]:
    """Writes rows, bisecting down to the one that the store refuses; returns the passages written."""
    try:
        store.upsert(load.generation.spec, rows)
    except (CollectionGone, InfrastructureDown):
        raise
    except Exception as error:
        if len(rows) > 1:
            half = len(rows) // 2
            first, second = (rows[:half], passages[:half]), (rows[half:], passages[half:])
            return upsert(store, load, *first) + upsert(store, load, *second)
        # Ours to refuse are bad rows; whatever else the store says may be about itself: ask it to store something.
        if not isinstance(error, BadVector | InvalidInput) and not store_answers(store):
            raise InfrastructureDown(f"the vector store refuses everything: {error}", part="milvus") from error
        load.failed.append((passages[0], reason(error)))
        return []
    return passages


def store_answers(store: VectorStore) -> bool:
    """The independent probe: are known vectors still stored and found?"""
    try:
        store.admin().probe_metric()
    except Exception:  # whatever it is, the store does not answer as it must
        return False
    return True


def confirm(flips: Flips, store: VectorStore, generation: Generation, complete: Complete, grace: float) -> bool:
    """Reads all keys of a complete version back with Strong consistency, then lets it serve."""
    keys = [passage_key(complete.document, complete.version, i) for i in range(complete.total)]
    found = store.fetch(generation.spec, keys)
    missing = [i for i, key in enumerate(keys) if key not in found]
    return flips.flip(complete, missing, grace)
