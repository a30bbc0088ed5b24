"""How many wake-ups lie in a queue, counted on a real broker."""

from __future__ import annotations

import redis

from workers import enqueue
from workers.queues import Queue


def test_the_sweep_stops_ringing_when_enough_wake_ups_lie_there(broker_url):
    redis.Redis.from_url(broker_url).flushdb()
    assert enqueue.depth(broker_url, Queue.GPU) == 0
    rung = [enqueue.ring_if_quiet(broker_url, "wellhead.drain") for _ in range(enqueue.WAKE_UPS + 3)]
    assert rung == [True] * enqueue.WAKE_UPS + [False] * 3
    assert enqueue.depth(broker_url, Queue.GPU) == enqueue.WAKE_UPS
    assert enqueue.depth(broker_url, Queue.CTL) == 0
