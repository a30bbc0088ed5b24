"""What every task shares: the process's parts, the time budget, and an end to MemoryError."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from celery import Task

from pipeline.breaker import Breaker
from pipeline.errors import InfrastructureDown, OutOfMemory
from pipeline.wiring import Parts, build
from workers.watchdog import Watchdog

log = logging.getLogger("wellhead.workers")


@lru_cache(maxsize=1)
def parts() -> Parts:
    """This process's parts, built at the first task: after the spawn, never in the parent."""
    return build()


@lru_cache(maxsize=1)
def ready() -> None:
    """This process's generation and its collection exist: asked of the servers once, not at every wake-up."""
    parts().ensure_generation()


@lru_cache(maxsize=8)
def breaker(purpose: str) -> Breaker:
    """One breaker a process and purpose, whose state /metrics shows."""
    made = Breaker()
    _breakers[purpose] = made
    return made


_breakers: dict[str, Breaker] = {}
_noted: dict[str, tuple[float, int]] = {}
# Seconds between two notes of a breaker that did not change.
_NOTE_EVERY = 5.0


def note_breakers() -> None:
    """Writes the breakers' states to PostgreSQL: at most every few seconds, at once when one opened or closed."""
    for purpose, each in list(_breakers.items()):
        at, failures = _noted.get(purpose, (-_NOTE_EVERY, 0))
        now = time.monotonic()
        if now - at < _NOTE_EVERY and (failures == 0) == (each.failures == 0):
            continue
        _noted[purpose] = (now, each.failures)
        try:
            parts().worker_states.note(purpose, each.wait, each.failures)
        except InfrastructureDown as error:
            # The database itself is down: nobody could read it anyway.
            log.warning("could not note the state of %s: %s", purpose, error)


@lru_cache(maxsize=1)
def watchdog() -> Watchdog:
    """This process's watchdog, watching since the first task."""
    dog = Watchdog(parts().settings.drain_hard_seconds)
    dog.start()
    return dog


def time_budget(seconds: float) -> Callable[[], bool]:
    """``more_time()``: False once the budget is used up. To ask is progress: stages ask when they finished something."""
    end = time.monotonic() + seconds

    def more_time() -> bool:
        watchdog().progress()
        return time.monotonic() < end

    return more_time


class PipelineTask(Task):
    """A wake-up: it does the work that rows describe, and its own failure loses nothing."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with watchdog().working():
                return self.run(*args, **kwargs)
        except InfrastructureDown as error:
            # The rows were given back; the sweep rings again. Not a failure of the task.
            log.warning("%s: %s", self.name, error)
            return None
        except MemoryError as error:
            # A MemoryError that escapes ends the whole worker and is redelivered for ever.
            raise OutOfMemory(f"{self.name} ran out of memory") from error
        finally:
            note_breakers()
