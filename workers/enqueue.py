"""Ringing a queue: send by name, best effort. The row in PostgreSQL is the work; a lost ring costs a sweep's wait."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis import RedisError

from workers.queues import ROUTES, Queue

log = logging.getLogger(__name__)

# Enough to wake a fleet: a drain that leaves work behind rings again itself.
WAKE_UPS = 8


@lru_cache(maxsize=4)
def _sender(broker_url: str) -> Celery:
    from workers.app import make_app

    return make_app(broker_url)


def ring(broker_url: str, task: str, **arguments: Any) -> bool:
    """Sends one wake-up; False, and a log line, when the broker cannot be reached."""
    try:
        _sender(broker_url).send_task(task, kwargs=arguments, queue=ROUTES[task], expires=60)
    except (OperationalError, OSError) as error:
        log.warning("could not ring %s: %s", task, error)
        return False
    return True


def ring_if_quiet(broker_url: str, task: str) -> bool:
    """What the sweep does at every tick: rings unless enough wake-ups lie there, so that an outage piles none up."""
    try:
        if depth(broker_url, ROUTES[task]) >= WAKE_UPS:
            return False
    except (OperationalError, OSError, RedisError) as error:
        log.warning("could not look into the queue of %s: %s", task, error)
        return False
    return ring(broker_url, task)


def prepare(broker_url: str) -> bool:
    """Documents wait to be cut into passages."""
    return ring(broker_url, "wellhead.prepare")


def drain(broker_url: str) -> bool:
    """Passages wait to be encoded."""
    return ring(broker_url, "wellhead.drain")


def describe(broker_url: str) -> bool:
    """Documents wait for their covers."""
    return ring(broker_url, "wellhead.describe")


def depth(broker_url: str, queue: Queue) -> int:
    """Wake-ups that lie in a queue."""
    with _sender(broker_url).connection_or_acquire() as connection:
        # The channel's client puts the key prefix in front by itself.
        return int(connection.default_channel.client.llen(queue.value))
