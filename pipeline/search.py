"""L0 and L1 of one question under one frozen view of who serves. A part that is down is named, never hidden."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.answers import LookupRequest
from pipeline.breaker import Breaker
from pipeline.documents import Kind
from pipeline.errors import CollectionGone, InfrastructureDown, Unavailable
from pipeline.handout import ActionMemory, Stopped
from pipeline.keyword_index import Named
from pipeline.lexicon import Lexicon, NamesSource
from pipeline.live import Invocations, Lookups
from pipeline.ports import LegResults, QueryVector, Scope, VectorStore
from pipeline.query_vectors import QueryVectors
from pipeline.relevance import Thresholds
from pipeline.serving import Serving, ServingWatch
from pipeline.session_memory import SessionMemory

NOTHING_SEARCHED = LegResults(dense=(), lexical=None)


@dataclass(frozen=True, kw_only=True)
class LookupLimits:
    """``candidates``: passages asked of each leg. ``identity``: the original's map instead of a fitted one."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    content_tokens: int = 2000
    flip_grace_seconds: float = 10.0
    max_query_chars: int = 4000
    candidates: int = 50
    filtered_candidates: int = 500
    identity: bool = False


@dataclass(frozen=True, kw_only=True)
class LookupParts:
    """What every tenant's lookups share."""

    ledger: Lookups
    names: NamesSource
    vectors: VectorStore
    queries: QueryVectors
    memory: ActionMemory | SessionMemory
    invocations: Invocations
    limits: LookupLimits = field(default_factory=LookupLimits)
    breaker: Breaker = field(default_factory=lambda: Breaker(base=0.5, most=5.0))


class Trace:
    """How long each stage of one lookup took, in milliseconds."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self.milliseconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            took = (time.perf_counter() - begun) * 1000
            self.milliseconds[name] = round(self.milliseconds.get(name, 0.0) + took, 3)

    def finish(self) -> Mapping[str, float]:
        self.milliseconds["total"] = round((time.perf_counter() - self._begun) * 1000, 3)
        return self.milliseconds


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What L0 and L1 found for one question, and which parts were missing. ``stopped``: nothing was searched."""

    text: str
    named: Named
    legs: LegResults
    query: QueryVector | None
    degraded: tuple[str, ...]
    stopped: Stopped | None = None


Stopper: TypeAlias = Callable[[Serving, str, QueryVector | None, Named], Stopped | None]


class Search:
    """The searches of one tenant."""

    def __init__(self, tenant: str, parts: LookupParts, serving: ServingWatch, lexicon: Lexicon) -> None:
        self._tenant = tenant
        self._parts = parts
        self._serving = serving
        self._lexicon = lexicon

    def search(self, request: LookupRequest, trace: Trace, stopper: Stopper) -> tuple[Serving, Searched]:
        """Who serves, and what was found there, unless ``stopper`` says that nothing need be searched. Raises Unavailable when PostgreSQL is down."""
        with trace.stage("serving"):
            serving = self._serving.current()
        try:
            return serving, self._search_once(request, serving, trace, stopper)
        except CollectionGone:
            # Swapped and dropped since the view was read, or lost: one more try with what is true now.
            serving = self._serving.current(fresh=True)
        try:
            return serving, self._search_once(request, serving, trace, stopper)
        except CollectionGone:
            return serving, self._search_once(request, serving, trace, stopper, lost=True)

    def _search_once(
        self, request: LookupRequest, serving: Serving, trace: Trace, stopper: Stopper, *, lost: bool = False
    ) -> Searched:
        # A named aspect is what the question now is about, so it takes part in the search.
        text = f"{request.query} {request.missing_aspect}" if request.missing_aspect else request.query
        missing: list[str] = ["rebuilding"] if serving.rebuilding else []
        with trace.stage("l0"):
            named = self._lexicon.match(text)
        query, legs = None, NOTHING_SEARCHED
        with trace.stage("encode"):
            try:
                query = self._parts.queries.vector(serving.generation.space, text)
            except Unavailable:
                missing.append("encoder")
        with trace.stage("memory"):
            stopped = stopper(serving, text, query, named)
        with trace.stage("search"):
            if stopped:
                pass
            elif lost or self._parts.breaker.open:
                missing.append("vectors")
            else:
                legs = self._legs(request, serving, query, text, missing)
        return Searched(text=text, named=named, legs=legs, query=query, degraded=tuple(missing), stopped=stopped)

    def _legs(
        self, request: LookupRequest, serving: Serving, query: QueryVector | None, text: str, missing: list[str]
    ) -> LegResults:
        scope = Scope(tenant=self._tenant, kind=Kind.ARTICLE, domain=request.domain)
        # Metadata is not in the vector store: a filter by it needs more candidates to choose from.
        limit = self._parts.limits.filtered_candidates if request.filter else self._parts.limits.candidates
        try:
            legs = self._parts.vectors.search(serving.spec, query, text, scope, limit)
        except InfrastructureDown:
            self._parts.breaker.failed()
            missing.append("vectors")
            return NOTHING_SEARCHED
        self._parts.breaker.succeeded()
        if legs.lexical is None:
            missing.append("lexical")
        return legs
