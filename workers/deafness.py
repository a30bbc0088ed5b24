"""A worker that hears no wake-up although some lie in its queue ends itself, and its supervisor starts it again.

Seen once in five runs: after a broker that was frozen for twenty seconds the gpu worker was alive and heard nothing for
three minutes. The other watchdog looks at tasks, and a worker that hears nothing has none.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from celery.signals import task_received, worker_ready
from kombu.exceptions import OperationalError
from redis import RedisError

from workers import enqueue
from workers.queues import Queue
from workers.watchdog import EXIT_STATUS

log = logging.getLogger("wellhead.watchdog")
LOOK_SECONDS = 5.0
# On top of the longest task: until then a worker with one slot may rightly hear nothing.
MARGIN_SECONDS = 60.0


class Deafness:
    """How long wake-ups have waited on end while none was heard."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._heard = -1
        self._since = clock()

    def look(self, waiting: bool, heard: int) -> bool:
        """``heard``: wake-ups received so far. True when it is time to end."""
        if not waiting or heard != self._heard:
            self._heard, self._since = heard, self._clock()
        return self._clock() - self._since > self._seconds


_heard = 0


@task_received.connect(weak=False)
def _count(**_event: Any) -> None:
    global _heard
    _heard += 1


@worker_ready.connect(weak=False)
def begin(sender: Any, **_event: Any) -> None:
    """In the parent, once it consumes."""
    queues = [Queue(q.name) for q in sender.task_consumer.queues]
    deafness = Deafness(sender.app.conf.task_time_limit + MARGIN_SECONDS)
    arguments = (sender.app.conf.broker_url, queues, deafness)
    threading.Thread(target=_watch, args=arguments, name="deafness", daemon=True).start()


def _watch(broker_url: str, queues: list[Queue], deafness: Deafness) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        if deafness.look(_waiting(broker_url, queues), _heard):
            log.critical("wake-ups wait and none is heard: this process ends so that another one goes on")
            os._exit(EXIT_STATUS)


def _waiting(broker_url: str, queues: list[Queue]) -> bool:
    try:
        return any(enqueue.depth(broker_url, queue) for queue in queues)
    except (OperationalError, OSError, RedisError):
        return False  # the broker is away: nobody could hear it
