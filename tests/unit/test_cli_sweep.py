"""What ``wellhead sweep`` says in words."""

from __future__ import annotations

import pytest

from ops.cli_sweep import sentence
from ops.durations import in_words

ANSWER = {
    "fingerprint": "m:384:abc|r1:400", "state": "stale", "generation": None, "documents": 1055, "tokens": 3_204_000,
    "parked": 0, "documents_total": 1100, "tokens_per_s": 6900.0, "seconds": 464.3,
}  # fmt: skip


def test_stale_documents_their_tokens_and_the_time():
    assert sentence(ANSWER) == (
        "1,055 of 1,100 documents (3,204,000 tokens) lack vectors of m:384:abc|r1:400;"
        " at the measured 6,900 tokens/s that takes about 7 min 44 s."
    )


def test_nothing_stale():
    assert sentence({**ANSWER, "state": "fresh", "documents": 0, "seconds": 0.0}) == (
        "Nothing is stale: all 1,100 documents have vectors of m:384:abc|r1:400."
    )


def test_no_rate_parked_ones_and_a_generation_that_was_started():
    said = sentence({**ANSWER, "seconds": None, "parked": 2, "state": "started", "generation": 4})
    assert (
        "no rate was measured yet" in said and "2 of them are parked" in said and "Generation 4 is being made" in said
    )


def test_one_that_is_kept_is_a_swap_away():
    said = sentence({**ANSWER, "documents": 0, "state": "kept", "generation": 1, "seconds": 0.0})
    assert "wellhead generations swap 1" in said


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (125, "2 min 5 s"), (7320, "2 h 2 min")]
)
def test_durations(seconds, words):
    assert in_words(seconds) == words
