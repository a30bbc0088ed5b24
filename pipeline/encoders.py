"""Every space's encoder in this process: during a model change there are two."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.fingerprint import Space
from pipeline.ports import Embedder

# A model that was not there may be unpacked later; until then nobody is kept waiting for it.
RETRY_SECONDS = 60.0


@dataclass(kw_only=True)
class _Place:
    lock: threading.Lock = field(default_factory=threading.Lock)
    embedder: Embedder | None = None
    tried_at: float | None = None


class Encoders:
    """Loads each encoder once, when it is first asked for. Whoever needs one that is loaded never waits for another."""

    def __init__(self, load: Callable[[Space], Embedder | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}

    def of(self, space: Space) -> Embedder | None:
        """The encoder of a space; None when it could not be loaded within the last minute."""
        with self._lock:
            place = self._places.setdefault(space.name, _Place())
        with place.lock:
            tried = place.tried_at
            if place.embedder is None and (tried is None or self._clock() - tried >= RETRY_SECONDS):
                place.embedder = self._load(space)
                place.tried_at = self._clock()
            return place.embedder
