"""One frozen view of who serves, for one request; read from PostgreSQL at most twice a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.errors import Unavailable
from pipeline.generation import Generation
from pipeline.lexicon import Lexicon
from pipeline.live import Lookups, ServingRow
from pipeline.ports import CollectionSpec
from pipeline.relevance import Calibration, IdentityCalibration, calibration_of, shipped_calibration

# What a view may lag behind PostgreSQL. A collection outlives its generation's service by a minute at least.
SECONDS = 0.5
# Whoever asked this recently has the names of then, and may go on with them while newer ones are loaded.
FRESH_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Serving:
    """All that a request may use: nothing of another generation is ever mixed in."""

    generation: Generation
    spec: CollectionSpec
    calibration: Calibration
    # The median cosine of two unrelated questions in its space, where a map was fitted for it.
    unrelated: float | None = None

    @property
    def rebuilding(self) -> bool:
        """Was its collection lost, and is not whole again?"""
        return self.generation.emptied_at is not None


class ServingWatch:
    """Reads who serves for one tenant, and keeps the tenant's lexicon in step."""

    def __init__(
        self,
        ledger: Lookups,
        lexicon: Lexicon,
        tenant: str,
        *,
        identity: bool = False,
        max_l2: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._lexicon = lexicon
        self._tenant = tenant
        self._identity = identity
        self._max_l2 = max_l2
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._serving: Serving | None = None

    def current(self, *, fresh: bool = False) -> Serving:
        """The view of at most half a second ago, or a new one. Raises Unavailable while no generation serves."""
        with self._lock:
            age = None if self._read_at is None else self._clock() - self._read_at
            if self._serving is None or age is None or age >= SECONDS or fresh:
                self._serving = self._read(wait=age is None or age >= FRESH_SECONDS)
                self._read_at = self._clock()
            return self._serving

    def _read(self, *, wait: bool) -> Serving:
        row = self._ledger.serving(self._tenant)
        if row is None:
            raise Unavailable("no generation serves yet: no worker has started", part="generation")
        self._lexicon.refresh(row.generation.id, row.change, wait=wait)
        return Serving(
            generation=row.generation,
            spec=row.generation.spec,
            calibration=self._calibration(row),
            unrelated=(row.calibration or {}).get("unrelated"),
        )

    def _calibration(self, row: ServingRow) -> Calibration:
        if self._identity:
            return IdentityCalibration(max_l2=self._max_l2)
        if row.calibration is None:
            return shipped_calibration()
        return calibration_of(row.calibration, row.generation.calibration, self._max_l2)
