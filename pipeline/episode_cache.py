"""Stored events and their views by (document, version), kept by the process: a version never changes.

What may be seen is asked of PostgreSQL before anything here is shown; this only saves reading it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.episode_view import EpisodeView, view_of
from pipeline.remembered import RawEvents

Version: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One version's events and their view."""

    events: RawEvents
    view: EpisodeView


class EpisodeCache:
    """The last read versions, up to ``most`` events together. Thread-safe."""

    def __init__(self, read: Callable[[Sequence[Version]], dict[Version, RawEvents]], most: int = 20_000) -> None:
        self._read = read
        self._most = most
        self._kept: OrderedDict[Version, Stored] = OrderedDict()
        self._events = 0
        self._lock = threading.Lock()

    def get(self, versions: Sequence[Version]) -> dict[Version, Stored]:
        """Those of ``versions`` that exist. Raises InfrastructureDown when one has to be read and cannot be."""
        with self._lock:
            found = {v: self._kept[v] for v in versions if v in self._kept}
            for version in found:
                self._kept.move_to_end(version)
        missing = [v for v in versions if v not in found]
        if missing:
            for version, events in self._read(missing).items():
                found[version] = Stored(events=events, view=view_of(events))
                self._keep(version, found[version])
        return found

    def _keep(self, version: Version, stored: Stored) -> None:
        size = len(stored.events)
        with self._lock:
            if size > self._most or version in self._kept:
                return
            self._kept[version] = stored
            self._events += size
            while self._events > self._most:
                _, gone = self._kept.popitem(last=False)
                self._events -= len(gone.events)
