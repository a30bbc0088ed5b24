"""The parts of the LLM queue and of the knowledge map, built lazily, once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from sqlalchemy import Engine

from pipeline.adapters.ledger.describing import DescribeLedger
from pipeline.adapters.ledger.domain_upkeep import DomainUpkeepLedger
from pipeline.adapters.ledger.domains import DomainLedger
from pipeline.adapters.ledger.llm_budget import LlmBudgetLedger, MemoLedger, Prices
from pipeline.adapters.ledger.maps import MapLedger
from pipeline.asking import Asker
from pipeline.breaker import Breaker
from pipeline.describe import DescribeLimits, Describer
from pipeline.domains import DomainLimits, DomainPace, DomainRefresher
from pipeline.extractive import ExtractiveWriter
from pipeline.llm_writer import LlmWriter
from pipeline.maps import Maps
from pipeline.settings import Settings
from pipeline.writing import Writer

# Instructions, the envelope's frame, the repair sentence and the first answer.
_PROMPT_OVERHEAD = 1000


class LlmParts:
    """What writes and reads descriptions."""

    def __init__(self, settings: Settings, engine: Callable[[], Engine]) -> None:
        self.settings = settings
        self._engine = engine

    @cached_property
    def budget(self) -> LlmBudgetLedger:
        """Budgets and account: ``usage()`` and ``standing()`` for status and /metrics."""
        s = self.settings
        prices = Prices(tokens_in=s.llm_price_in, tokens_out=s.llm_price_out)
        return LlmBudgetLedger(self._engine(), s.llm_base_url, s.llm_calls_per_hour, s.llm_tokens_per_day, prices)

    @cached_property
    def writer(self) -> Writer:
        """The model's, or without an endpoint the extractive one."""
        s = self.settings
        if not s.llm_base_url:
            return ExtractiveWriter()
        from pipeline.adapters.llm import OpenAiLlm

        llm = OpenAiLlm(s.llm_base_url, s.llm_model, s.llm_api_key.get_secret_value(), s.llm_timeout_seconds)
        room = s.llm_window_tokens - s.llm_reply_tokens - _PROMPT_OVERHEAD
        return LlmWriter(
            asker=Asker(llm=llm, budget=self.budget, memo=MemoLedger(self._engine()), max_tokens=s.llm_reply_tokens),
            prompt_tokens=min(s.llm_prompt_tokens, room),
        )

    @cached_property
    def describing(self) -> DescribeLedger:
        return DescribeLedger(self._engine())

    @cached_property
    def domains(self) -> DomainLedger:
        return DomainLedger(self._engine())

    @cached_property
    def upkeep(self) -> DomainUpkeepLedger:
        return DomainUpkeepLedger(self._engine())

    @cached_property
    def map_ledger(self) -> MapLedger:
        return MapLedger(self._engine())

    @cached_property
    def maps(self) -> Maps:
        """Every tenant's knowledge map, cached: ``maps.of(tenant)``."""
        return Maps(self.map_ledger, self.settings.map_tokens)

    def describer(self, breaker: Breaker) -> Describer:
        """The describe stage over this process's writer."""
        s = self.settings
        limits = DescribeLimits(
            call_seconds=s.llm_timeout_seconds,
            claim_longest_seconds=max(s.claim_longest_seconds, 2 * s.llm_timeout_seconds + 60),
            retry_base_seconds=s.retry_base_seconds,
            max_errors=s.max_errors,
        )
        return Describer(jobs=self.describing, writer=self.writer, budget=self.budget, breaker=breaker, limits=limits)

    def refresher(self, breaker: Breaker) -> DomainRefresher:
        """The domain stage over this process's writer."""
        s = self.settings
        pace = DomainPace(quiet=s.llm_domain_quiet_seconds, wait=s.llm_domain_wait_seconds, calls=s.llm_domain_calls)
        limits = DomainLimits(
            pace=pace,
            call_seconds=s.llm_timeout_seconds,
            retry_base_seconds=s.retry_base_seconds,
            max_errors=s.max_errors,
        )
        return DomainRefresher(
            domains=self.domains, writer=self.writer, budget=self.budget, breaker=breaker, limits=limits
        )

    def tick(self) -> None:
        """What every tick puts in order before due domains are summarised."""
        self.upkeep.settle()
        self.upkeep.requeue_undescribed(max_errors=self.settings.max_errors)
        self.upkeep.mark_stale(
            self.writer.fingerprint, ExtractiveWriter.fingerprint, self.settings.llm_refresh_per_hour
        )
