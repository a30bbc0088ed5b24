"""Budgets shared by all workers: hourly calls, daily tokens, and that nothing is lost over them."""

from __future__ import annotations

import threading

import pytest

from pipeline.adapters.ledger.llm_budget import LlmBudgetLedger
from pipeline.llm import Purpose, Reply

REPLY = Reply(text="x", tokens_in=30, tokens_out=10)


def budget(ledgers, calls=10, tokens=10_000):
    return LlmBudgetLedger(ledgers.engine, "endpoint", calls, tokens)


def test_many_workers_together_make_no_more_calls_than_the_cap(ledgers):
    workers = [budget(ledgers, calls=25) for _ in range(4)]
    allowed = []

    def work(mine):
        for _ in range(20):
            if mine.reserve(10) == 0:
                allowed.append(1)

    threads = [threading.Thread(target=work, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(allowed) == 25
    assert 3500 < workers[0].wait() <= 3660


def test_the_window_slides(ledgers):
    mine = budget(ledgers, calls=2)
    assert [mine.reserve(1), mine.reserve(1)] == [0, 0]
    assert mine.reserve(1) > 0
    ledgers.rows("UPDATE llm_window SET minute = minute - interval '61 minutes'")
    assert mine.reserve(1) == 0


def test_tokens_are_booked_as_estimated_and_settled_as_used(ledgers):
    mine = budget(ledgers, calls=100, tokens=1000)
    assert mine.reserve(990) == 0
    assert mine.standing().tokens_last_day == 990
    mine.settle("t", Purpose.DESCRIBE, 990, REPLY)
    assert mine.standing().tokens_last_day == 40
    assert mine.reserve(2000) == 0, "the call that reaches the cap is made"
    assert mine.reserve(1) > 80_000
    assert "tokens per day" in mine.standing().reason
    mine.settle("t", Purpose.DESCRIBE, 2000, None)
    assert mine.reserve(1) == 0
    (used,) = mine.usage()
    assert (used.calls, used.tokens_in, used.tokens_out) == (1, 30, 10)


def test_a_shorter_pause_does_not_end_a_longer_one(ledgers):
    mine = budget(ledgers)
    mine.pause(100, "long")
    mine.pause(1, "short")
    assert 90 < mine.wait() <= 100


@pytest.mark.parametrize("caps", [{"llm_calls_per_hour": 3}, {"llm_tokens_per_day": 350}])
def test_over_the_budget_jobs_wait_and_nothing_is_lost(ledgers, llm_side, llm_server, caps):
    ledgers.generation()
    for i in range(8):
        ledgers.put(f"d{i}", f"text number {i}")
    ledgers.prepare()
    side = llm_side(**caps, llm_reply_tokens=128)
    side.describe()
    side.describe()
    side.refresh()
    assert len(llm_server.calls()) == 3
    states = ledgers.rows("SELECT state, errors, count(*) AS n FROM describe_job GROUP BY 1, 2")
    assert states == [{"state": "pending", "errors": 0, "n": 5}]
    ledgers.rows("UPDATE llm_window SET minute = minute - interval '25 hours'")
    ledgers.rows("UPDATE describe_job SET not_before = clock_timestamp()")
    side.describe()
    ledgers.rows("UPDATE llm_window SET minute = minute - interval '26 hours'")
    ledgers.rows("UPDATE describe_job SET not_before = clock_timestamp()")
    side.describe()
    assert ledgers.rows("SELECT count(*) AS n FROM describe_job") == [{"n": 0}]
