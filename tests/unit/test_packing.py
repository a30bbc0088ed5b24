"""Batches of passages: each exactly once, longest first, never over the budget unless alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.packing import pack, slots

LENGTHS = st.lists(st.integers(1, 600), max_size=80)
BUDGETS = st.integers(1, 4000)


def cost(lengths, batch):
    return len(batch) * max(lengths[i] for i in batch)


@given(LENGTHS, BUDGETS)
@example([], 1)
@example([5], 4)
@example([5, 5], 10)
@example([5, 5, 1], 10)
@example([7, 3, 7, 3, 3], 9)
def test_every_index_once_longest_first_within_the_budget(lengths, budget):
    batches = pack(lengths, budget)
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    assert all(batches), "a batch of nothing would cost a call"
    for batch in batches:
        assert cost(lengths, batch) <= budget or (len(batch) == 1 and lengths[batch[0]] > budget)


@given(LENGTHS, BUDGETS)
@example([5, 5], 10)
def test_a_batch_ends_only_where_the_next_item_would_break_the_budget(lengths, budget):
    batches = pack(lengths, budget)
    for batch, following in zip(batches, batches[1:]):
        assert cost(lengths, [*batch, following[0]]) > budget


@given(LENGTHS, BUDGETS)
@example([4, 2], 8)
def test_slots_are_the_tokens_and_the_padding(lengths, budget):
    batches = pack(lengths, budget)
    padding = sum(max(lengths[i] for i in batch) - lengths[j] for batch in batches for j in batch)
    assert slots(lengths, batches) == sum(lengths) + padding


def test_items_of_one_length_fill_batches_to_the_budget_and_keep_their_order():
    assert pack([3] * 7, 9) == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_item_over_the_budget_goes_alone_and_the_others_together():
    assert pack([2, 30, 1, 2], 6) == [[1], [0, 3, 2]]


def test_short_items_are_not_padded_to_a_long_one():
    lengths = [100, 1, 100, 1, 100, 1]
    assert pack(lengths, 300) == [[0, 2, 4], [1, 3, 5]]
    assert slots(lengths, pack(lengths, 300)) == sum(lengths)
    assert slots(lengths, [[0, 1], [2, 3], [4, 5]]) == 600, "as they came, each short one costs as much as a long one"


def test_nothing_costs_nothing():
    assert pack([], 100) == []
    assert slots([], []) == 0


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_of_no_token_is_refused(budget):
    with pytest.raises(ValueError, match="at least one token"):
        pack([1], budget)
