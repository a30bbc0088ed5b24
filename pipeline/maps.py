"""The map of each tenant as this process last built it, kept until the tenant's domains change."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from pipeline.knowledge_map import KnowledgeMap, MapDomain, build_map


class MapSource(Protocol):
    """Where maps come from: a counter that every change moves, and the domains behind it."""

    def map_version(self, tenant: str) -> int: ...
    def map_domains(self, tenant: str, documents: int) -> Sequence[MapDomain]: ...


class Maps:
    """Maps by tenant. Whether a kept one still holds is asked at most every ``recheck`` seconds: a fifth of the
    second within which a commit must show. A rebuild takes one thread, the others wait for it.
    """

    def __init__(self, source: MapSource, budget: int, keep: int = 256, recheck: float = 0.2) -> None:
        self._source = source
        self._budget = budget
        self._keep = keep
        self.recheck = recheck
        self._lock = threading.Lock()
        self._built: dict[str, tuple[int, float, KnowledgeMap]] = {}

    def of(self, tenant: str) -> KnowledgeMap:
        """The tenant's map as of the last committed change, ``recheck`` seconds ago at the latest."""
        kept = self._built.get(tenant)
        if kept is not None and time.monotonic() - kept[1] < self.recheck:
            return kept[2]
        with self._lock:
            kept = self._built.get(tenant)
            asked = time.monotonic()
            if kept is not None and asked - kept[1] < self.recheck:
                return kept[2]
            # The version is read before the domains: a change in between makes the next check build again.
            version = self._source.map_version(tenant)
            made = kept[2] if kept is not None and kept[0] == version else self._build(tenant)
            if len(self._built) >= self._keep and tenant not in self._built:
                self._built.pop(next(iter(self._built)))
            self._built[tenant] = (version, asked, made)
            return made

    def _build(self, tenant: str) -> KnowledgeMap:
        # The shortest entry takes a dozen tokens: more documents than that of a domain cannot be shown.
        return build_map(self._source.map_domains(tenant, self._budget // 12), self._budget)
