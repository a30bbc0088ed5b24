"""Both ways into memory, always: exact strings in PostgreSQL, and the dense and the lexical leg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pipeline.breaker import Breaker
from pipeline.documents import Kind
from pipeline.episode_cache import EpisodeCache
from pipeline.errors import CollectionGone, InfrastructureDown, Unavailable
from pipeline.exact_strings import ExactStrings, exact_strings
from pipeline.live import Invocations, ServingRow
from pipeline.ports import LegResults, QueryVector, Scope, VectorStore
from pipeline.query_vectors import QueryVectors
from pipeline.recall_answers import RecallRequest
from pipeline.relevance import Thresholds
from pipeline.remembered import Episodes, Narrowing
from pipeline.search import NOTHING_SEARCHED, Trace


@dataclass(frozen=True, kw_only=True)
class RecallLimits:
    """``candidates``: passages asked of each leg; ``wide``: the same where many may fall away afterwards.

    ``examined``: episodes whose words are read for a level; ``pinned``: a string that more episodes say than this
    singles nobody out; ``page_events``, ``page_characters``: what one answer holds.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    flip_grace_seconds: float = 10.0
    lease_seconds: float = 600.0
    max_query_chars: int = 4000
    max_top_k: int = 10
    candidates: int = 50
    wide: int = 500
    examined: int = 8
    examined_to_hold: int = 30
    pinned: int = 50
    page_events: int = 200
    page_characters: int = 20_000


@dataclass(frozen=True, kw_only=True)
class RecallParts:
    """What every tenant's recalls share."""

    ledger: Episodes
    vectors: VectorStore
    queries: QueryVectors
    invocations: Invocations
    limits: RecallLimits = field(default_factory=RecallLimits)
    breaker: Breaker = field(default_factory=lambda: Breaker(base=0.5, most=5.0))

    @cached_property
    def stored(self) -> EpisodeCache:
        """The events of versions, as far as they are still kept."""
        return EpisodeCache(self.ledger.events)


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """What was found for one question, before anything is known of the episodes; which parts were missing."""

    serving: ServingRow
    legs: LegResults
    strings: ExactStrings
    said: Mapping[tuple[int, int], frozenset[str]]
    degraded: tuple[str, ...]


def within(tenant: str, request: RecallRequest) -> Narrowing:
    """What this request may see."""
    return Narrowing(tenant=tenant, domain=request.domain, user_id=request.user_id, agent_id=request.agent_id)


class RecallSearch:
    """The searches of one tenant."""

    def __init__(self, tenant: str, parts: RecallParts) -> None:
        self._tenant = tenant
        self._parts = parts
        self._limits = parts.limits

    def serving(self) -> ServingRow:
        """Who serves. Raises Unavailable before the first generation."""
        serving = self._parts.ledger.serving(self._tenant)
        if serving is None:
            raise Unavailable("no generation serves yet: no worker has started", part="generation")
        return serving

    def search(self, request: RecallRequest, trace: Trace) -> Recalled:
        """What exact strings and both legs find; parts that are down are named, not raised."""
        missing: list[str] = []
        with trace.stage("serving"):
            serving = self.serving()
        try:
            legs = self._legs(request, serving, trace, missing)
        except CollectionGone:
            # Swapped and dropped in between, or lost: one more try with what is true now.
            missing.clear()
            serving = self.serving()
            try:
                legs = self._legs(request, serving, trace, missing)
            except CollectionGone:
                legs = NOTHING_SEARCHED
                missing.append("vectors")
        if serving.generation.emptied_at is not None:
            missing.append("rebuilding")
        with trace.stage("strings"):
            strings = exact_strings(request.query)
            said = self._said(request, serving, strings) if strings else {}
        return Recalled(serving=serving, legs=legs, strings=strings, said=said, degraded=tuple(missing))

    def _legs(self, request: RecallRequest, serving: ServingRow, trace: Trace, missing: list[str]) -> LegResults:
        query: QueryVector | None = None
        with trace.stage("encode"):
            try:
                query = self._parts.queries.vector(serving.generation.space, request.query)
            except Unavailable:
                missing.append("encoder")
        if self._parts.breaker.open:
            missing.append("vectors")
            return NOTHING_SEARCHED
        wide = request.consume or request.user_id is not None or request.agent_id is not None
        limit = self._limits.wide if wide else self._limits.candidates
        scope = Scope(tenant=self._tenant, kind=Kind.EPISODE, domain=request.domain)
        with trace.stage("search"):
            try:
                legs = self._parts.vectors.search(serving.generation.spec, query, request.query, scope, limit)
            except InfrastructureDown:
                self._parts.breaker.failed()
                missing.append("vectors")
                return NOTHING_SEARCHED
        self._parts.breaker.succeeded()
        if legs.lexical is None:
            missing.append("lexical")
        return legs

    def _said(
        self, request: RecallRequest, serving: ServingRow, strings: ExactStrings
    ) -> dict[tuple[int, int], frozenset[str]]:
        """Who says which string, without the strings that too many say."""
        most = self._limits.pinned
        rows = self._parts.ledger.saying(
            serving.generation.id, strings.tokens, strings.phrases, within(self._tenant, request), most
        )
        common = {s for s in strings.all if sum(r.string == s for r in rows) > most}
        found: dict[tuple[int, int], set[str]] = {}
        for row in rows:
            if row.string not in common:
                found.setdefault((row.document, row.version), set()).add(row.string)
        return {place: frozenset(said) for place, said in found.items()}
