"""Token-budget batches of length-sorted passages: what keeps padding near zero."""

from __future__ import annotations

from collections.abc import Sequence


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of ``lengths`` in batches, longest first.

    A batch of n items costs n × (its longest item) token slots, at most ``budget``; an item over the
    budget goes alone. Sorted by length, so the slots stay close to the real tokens.
    """
    if budget < 1:
        raise ValueError("budget must be at least one token")
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
    return batches


def slots(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Token slots the batches compute, padding included."""
    return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
