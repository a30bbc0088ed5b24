"""Liveness is progress: a process that has work and finishes nothing for too long ends itself.

A worker that hangs still answers pings, and a supervisor that asks "are you there" hears yes. Here the process looks
at itself. A pool child that ended is started again by Celery, a worker by whatever supervises it; its claims lapse.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("wellhead.watchdog")

# BSD's EX_SOFTWARE: tells the watchdog's end from a crash in the supervisor's log.
EXIT_STATUS = 70


class Watchdog:
    """Watches the tasks of one process. ``seconds`` without progress of any one of them ends it."""

    def __init__(
        self,
        seconds: float,
        *,
        end: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._end = end
        self._clock = clock
        self._guard = threading.Lock()
        self._since: dict[int, float] = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around a task: this thread has work from now on. Waiting for work is no work and is not watched."""
        thread = threading.get_ident()
        with self._guard:
            self._since[thread] = self._clock()
        try:
            yield
        finally:
            with self._guard:
                del self._since[thread]

    def progress(self) -> None:
        """This thread finished something; outside of a task it does nothing."""
        thread = threading.get_ident()
        with self._guard:
            if thread in self._since:
                self._since[thread] = self._clock()

    def idle_seconds(self) -> float:
        """How long the task that is stuck longest has finished nothing; 0 without a task."""
        with self._guard:
            return max((self._clock() - since for since in self._since.values()), default=0.0)

    def look(self) -> None:
        """Ends the process when a task is overdue. One look; :meth:`start` looks for ever."""
        stuck = self.idle_seconds()
        if stuck > self._seconds:
            log.critical("nothing was finished for %.0f s: this process ends so that another one goes on", stuck)
            # Where every thread hangs, for whoever asks why; straight to the descriptor, a logger may hang too.
            faulthandler.dump_traceback(file=sys.__stderr__ or 2)
            self._end(EXIT_STATUS)

    def start(self) -> None:
        """Looks every quarter of the deadline, at least once a second, in a thread of its own."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        pause = min(1.0, self._seconds / 4)
        while True:
            time.sleep(pause)
            self.look()
