"""The map of each tenant as this process last built it, kept until the tenant's domains change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from pipeline.knowledge_map import KnowledgeMap, MapDomain, build_map


class MapSource(Protocol):
    """Where maps come from: a counter that every change moves, and the domains behind it."""

    def map_version(self, tenant: str) -> int: ...
    def map_domains(self, tenant: str, documents: int) -> Sequence[MapDomain]: ...


class Maps:
    """Maps by tenant. One small query a request says whether the kept one still holds; a rebuild takes one thread."""

    def __init__(self, source: MapSource, budget: int, keep: int = 256) -> None:
        self._source = source
        self._budget = budget
        self._keep = keep
        self._lock = threading.Lock()
        self._built: dict[str, tuple[int, KnowledgeMap]] = {}

    def of(self, tenant: str) -> KnowledgeMap:
        """The tenant's map as of the last committed change."""
        version = self._source.map_version(tenant)
        kept = self._built.get(tenant)
        if kept is not None and kept[0] == version:
            return kept[1]
        with self._lock:
            # The version is read before the domains: a change in between makes the next request build again.
            version = self._source.map_version(tenant)
            kept = self._built.get(tenant)
            if kept is None or kept[0] != version:
                # The shortest entry takes a dozen tokens: more documents than that of a domain cannot be shown.
                domains = self._source.map_domains(tenant, self._budget // 12)
                kept = (version, build_map(domains, self._budget))
                if len(self._built) >= self._keep and tenant not in self._built:
                    self._built.pop(next(iter(self._built)))
                self._built[tenant] = kept
        return kept[1]
