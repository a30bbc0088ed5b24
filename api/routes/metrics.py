"""``GET /metrics`` for Prometheus: figures of the whole server, read from PostgreSQL at every scrape."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.auth import Reader
from api.deps import Shared
from api.routes.documents import lane_name
from pipeline.adapters.ledger.llm_budget import LlmBudgetLedger
from pipeline.adapters.ledger.status import StatusLedger
from pipeline.adapters.ledger.worker_state import WorkerStateLedger

router = APIRouter(tags=["status"])


class LedgerFigures(Collector):
    """Each method is a group of metrics; the ledger is asked when they are collected."""

    def __init__(self, figures: StatusLedger, workers: WorkerStateLedger, budget: LlmBudgetLedger) -> None:
        self._figures = figures
        self._workers = workers
        self._budget = budget

    def collect(self) -> Iterator[Metric]:
        """Everything, in the order of the page."""
        yield self._documents()
        yield from self._waiting()
        yield from self._encoding()
        yield from self._breakers()
        yield from self._llm()
        yield self._counters()

    def _documents(self) -> Metric:
        family = GaugeMetricFamily("wellhead_documents", "Documents by state of the newest version", labels=["state"])
        for state, count in self._figures.documents_by_state().items():
            family.add_metric([state], count)
        return family

    def _waiting(self) -> Iterator[Metric]:
        documents = GaugeMetricFamily("wellhead_pending_documents", "Documents waiting to be cut", labels=["lane"])
        passages = GaugeMetricFamily("wellhead_pending_passages", "Passages waiting to be encoded", labels=["lane"])
        tokens = GaugeMetricFamily("wellhead_pending_tokens", "Tokens waiting to be encoded", labels=["lane"])
        oldest = GaugeMetricFamily(
            "wellhead_oldest_pending_seconds", "Age of the oldest waiting upload", labels=["lane"]
        )
        for lane in self._figures.pending():
            label = [lane_name(lane.lane)]
            documents.add_metric(label, lane.documents)
            passages.add_metric(label, lane.passages)
            tokens.add_metric(label, lane.tokens)
            oldest.add_metric(label, lane.oldest_seconds)
        work = self._figures.work()
        yield from (documents, passages, tokens, oldest)
        yield GaugeMetricFamily("wellhead_claimed_passages", "Passages a worker holds", value=work["claimed"])
        yield GaugeMetricFamily("wellhead_parked_passages", "Passages that failed for good", value=work["parked"])

    def _encoding(self) -> Iterator[Metric]:
        minute = self._figures.throughput()
        yield GaugeMetricFamily("wellhead_tokens_per_second", "Encoding, last minute", value=minute.tokens_per_s)
        if minute.batch_fill is not None:
            yield GaugeMetricFamily(
                "wellhead_batch_fill", "Tokens per token slot, last minute", value=minute.batch_fill
            )
        histogram = HistogramMetricFamily(
            "wellhead_upload_to_searchable_seconds", "From the upload's commit to its flip", labels=["lane"]
        )
        for lane, counted in self._figures.searchable_histogram().items():
            histogram.add_metric([lane_name(lane)], counted.buckets, counted.seconds)
        yield histogram

    def _breakers(self) -> Iterator[Metric]:
        processes = GaugeMetricFamily("wellhead_worker_processes", "Heard of in ten minutes", labels=["purpose"])
        open_ = GaugeMetricFamily("wellhead_breakers_open", "Processes that wait for a part", labels=["purpose"])
        success = GaugeMetricFamily("wellhead_last_success_seconds", "Since work last succeeded", labels=["purpose"])
        for state in self._workers.states():
            processes.add_metric([state.purpose], state.processes)
            open_.add_metric([state.purpose], state.open)
            if state.last_success is not None:
                success.add_metric([state.purpose], state.last_success)
        yield from (processes, open_, success)

    def _llm(self) -> Iterator[Metric]:
        labels = ["tenant", "purpose"]
        calls = GaugeMetricFamily("wellhead_llm_calls", "LLM calls today (UTC)", labels=labels)
        tokens = GaugeMetricFamily("wellhead_llm_tokens", "LLM tokens today (UTC)", labels=[*labels, "direction"])
        cost = GaugeMetricFamily("wellhead_llm_cost", "What they cost, at the configured prices", labels=labels)
        for used in self._budget.usage():
            name = [used.tenant, used.purpose]
            calls.add_metric(name, used.calls)
            tokens.add_metric([*name, "in"], used.tokens_in)
            tokens.add_metric([*name, "out"], used.tokens_out)
            cost.add_metric(name, used.cost)
        yield from (calls, tokens, cost)

    def _counters(self) -> Metric:
        family = CounterMetricFamily(
            "wellhead_events", "Counted events: fenced commits, lapsed claims …", labels=["name"]
        )
        for name, value in self._figures.counters().items():
            family.add_metric([name], value)
        return family


@router.get("/metrics", response_class=Response)
def metrics(_caller: Reader, shared: Shared) -> Response:
    """Needs a key with the scope ``read`` where keys exist; else open to this machine only."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LedgerFigures(shared.parts.status, shared.parts.worker_states, shared.parts.llm.budget))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
