"""Breakers and last successes are written by the workers and read by /metrics."""

from __future__ import annotations

import pytest

from pipeline.adapters.ledger.worker_state import WorkerStateLedger
from pipeline.breaker import Breaker
from pipeline.errors import InfrastructureDown


@pytest.fixture
def states(ledgers):
    return WorkerStateLedger(ledgers.engine)


def test_a_failure_shows_and_a_success_is_not_forgotten_by_it(states):
    states.note("drain", 0.0, 0)
    states.note("drain", 4.0, 3)
    (drain,) = states.states()
    assert (drain.purpose, drain.processes, drain.open, drain.failures) == ("drain", 1, 1, 3)
    assert drain.last_success is not None
    states.note("drain", 0.0, 0)
    assert states.states()[0].open == 0


def test_processes_that_are_gone_count_no_more(states, ledgers):
    states.note("drain", 4.0, 3)
    ledgers.rows("UPDATE worker_state SET seen_at = seen_at - interval '11 minutes', pid = 1")
    states.note("llm", 0.0, 0)
    assert [(s.purpose, s.processes, s.open) for s in states.states()] == [("drain", 0, 0), ("llm", 1, 0)]
    ledgers.rows("UPDATE worker_state SET seen_at = seen_at - interval '25 hours' WHERE purpose = 'drain'")
    states.note("llm", 0.0, 0)
    assert [s.purpose for s in states.states()] == ["llm"]


def test_a_worker_notes_its_breakers_rarely_unless_one_changes(monkeypatch):
    from workers import base

    noted = []

    class States:
        def note(self, purpose, wait, failures):
            noted.append((purpose, failures))
            if failures == 2:
                raise InfrastructureDown("PostgreSQL: gone", part="postgresql")

    class Parts:
        worker_states = States()

    breaker = Breaker()
    monkeypatch.setattr(base, "parts", lambda: Parts)
    monkeypatch.setattr(base, "_breakers", {"drain": breaker})
    monkeypatch.setattr(base, "_noted", {})
    base.note_breakers()
    base.note_breakers()
    assert noted == [("drain", 0)]
    breaker.failed()
    base.note_breakers()
    assert noted == [("drain", 0), ("drain", 1)]
    breaker.failed()
    base._noted.clear()
    base.note_breakers()
    assert noted[-1] == ("drain", 2), "a database that is down is no error of the task"
