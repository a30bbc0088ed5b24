"""A breaker: after an infrastructure failure this process waits, longer each time, and counts nothing."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """Open for ``base`` seconds after a failure, doubling up to ``most``; one success closes it."""

    def __init__(self, base: float = 1.0, most: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._base = base
        self._most = most
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next attempt may be made; 0 when closed."""
        return max(0.0, self._until - self._clock())

    @property
    def failures(self) -> int:
        """Failures since the last success."""
        return self._failures

    @property
    def open(self) -> bool:
        """Must this process leave the work alone?"""
        return self.wait > 0

    def failed(self) -> None:
        """Opens the breaker, longer than the last time."""
        self._until = self._clock() + min(self._most, self._base * 2**self._failures)
        self._failures += 1

    def succeeded(self) -> None:
        """Closes it."""
        self._failures = 0
        self._until = 0.0
