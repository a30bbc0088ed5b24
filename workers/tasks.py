"""The tasks: each one stage, a few lines, ids only."""

from __future__ import annotations

import threading
from collections.abc import Callable

from celery import shared_task

from pipeline.generations import in_order, retire_old
from pipeline.prepare import prepare as prepare_stage
from pipeline.reconcile import reconcile as reconcile_stage
from pipeline.swapping import run_check, try_swap
from pipeline.sweep import heal as heal_stage
from pipeline.sweep import long_jobs as long_jobs_stage
from pipeline.sweep import sweep as sweep_stage
from workers import enqueue
from workers.base import PipelineTask, breaker, parts, ready, time_budget
from workers.queues import Queue


@shared_task(base=PipelineTask, name="wellhead.prepare")
def prepare() -> None:
    """Cuts waiting documents into passages and rings the GPU queue."""
    p = parts()
    ready()
    done = prepare_stage(
        p.preparing, p.generations, p.tokenizer_for, p.prepare_limits, time_budget(p.settings.drain_seconds)
    )
    if done:
        enqueue.drain(p.settings.broker_url)
        enqueue.describe(p.settings.broker_url)


@shared_task(base=PipelineTask, name="wellhead.drain")
def drain() -> None:
    """Encodes waiting passages for at most the drain budget; rings again when work is left."""
    p = parts()
    ready()
    written = p.drain(breaker("drain")).run(in_order(p.generations.active()), time_budget(p.settings.drain_seconds))
    if written and p.sweeping.pending()[Queue.GPU]:
        enqueue.drain(p.settings.broker_url)


@shared_task(base=PipelineTask, name="wellhead.sweep")
def sweep() -> None:
    """Finds whatever was forgotten and rings the queues that have work."""
    p = parts()
    for task in sweep_stage(p.sweeping, p.generations, p.passages, p.vectors, p.sweep_limits):
        enqueue.ring_if_quiet(p.settings.broker_url, task)


@shared_task(base=PipelineTask, name="wellhead.long_jobs")
def long_jobs() -> None:
    """Takes fill, reconcile and drop jobs a few pages further."""
    p = parts()
    if long_jobs_stage(p.jobs, p.generations, p.sweep_limits, time_budget(p.settings.drain_seconds)):
        enqueue.prepare(p.settings.broker_url)
    if p.calibrations_due():
        enqueue.ring(p.settings.broker_url, "wellhead.calibrate")
    tick = try_swap(p.generations, p.swaps, p.swaps, p.vectors, p.swap_limits, p.calibrated)
    wanted = {"wellhead.check_recall": tick.check, "wellhead.reconcile": tick.compare}
    for task in (name for name, needed in wanted.items() if needed):
        # Not only when it is quiet: under steady uploads the queue never is, and the swap would never come.
        enqueue.ring(p.settings.broker_url, task)
    retire_old(p.generations, p.drops, p.vectors, p.settings.soak_seconds, p.settings.quiet_seconds)


@shared_task(base=PipelineTask, name="wellhead.reconcile")
def reconcile() -> None:
    """Compares PostgreSQL and Milvus both ways when that is due, and repairs what differs."""
    p = parts()
    p.reconciling.due(p.settings.reconcile_seconds)
    more_time, active = time_budget(p.settings.drain_seconds), p.generations.active()
    reconcile_stage(p.jobs, p.reconciling, p.vectors, active, p.sweep_limits.job_seconds, more_time)


@shared_task(base=PipelineTask, name="wellhead.check_recall")
def check_recall() -> None:
    """Compares the building generation with the serving one; on the GPU queue, where the encoders are."""
    p = parts()
    run_check(p.generations, p.swaps, p.vectors, p.embedder_for, p.swap_limits, _live_first())


@shared_task(base=PipelineTask, name="wellhead.calibrate")
def calibrate() -> None:
    """Fits what relevance means in a generation that is due; on the GPU queue, where the encoders are."""
    p = parts()
    p.calibrate.run(p.generations.active(), more_time=_live_first())


def _live_first() -> Callable[[], bool]:
    """``more_time()`` of a task that asks the encoder hundreds of questions: uploads go between two of them."""
    p = parts()
    drain, active = p.drain(breaker("drain")), in_order(p.generations.active())
    more_time = time_budget(p.settings.drain_seconds)

    def serve_and_go_on() -> bool:
        drain.serve_live(active)
        return more_time()

    return serve_and_go_on


@shared_task(base=PipelineTask, name="wellhead.heal")
def heal() -> None:
    """Notices an emptied or missing collection and starts its rebuilding."""
    p = parts()
    heal_stage(p.generations, p.vectors)


@shared_task(base=PipelineTask, name="wellhead.trim")
def trim() -> None:
    """Removes rows that only matter for a while."""
    parts().housekeeping.trim()


# Without an endpoint describing is computing, in the process that cuts uploads: one at a time, so that a thread is
# left for those. Whoever comes meanwhile may go: the one who describes rings again when work is left.
_describing = threading.Lock()


@shared_task(base=PipelineTask, name="wellhead.describe")
def describe() -> None:
    """Writes what waiting documents cover; due domains come first, so that a backlog cannot keep them waiting."""
    p = parts()
    alone = not p.settings.llm_base_url
    if alone and not _describing.acquire(blocking=False):
        return
    more_time = time_budget(min(p.settings.drain_seconds, 10))
    try:
        p.llm.refresher(breaker("llm")).run(more_time)
        written = p.llm.describer(breaker("llm")).run(more_time)
    finally:
        if alone:
            _describing.release()
    if written and p.sweeping.pending()[Queue.LLM]:
        enqueue.describe(p.settings.broker_url)


@shared_task(base=PipelineTask, name="wellhead.refresh_domains")
def refresh_domains() -> None:
    """Keeps domains in step with their documents and summarises those that are due."""
    p = parts()
    p.llm.tick()
    p.llm.refresher(breaker("llm")).run(time_budget(p.settings.drain_seconds))
