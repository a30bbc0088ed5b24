"""What a language model that takes 30 seconds does to embedding: nothing, or this says how much.

    python -m ops.bench.llm_beside [documents a round] [rounds]

Rounds in turns with and without a Celery worker on the LLM queue whose endpoint answers after 30 seconds; every round
cuts and embeds other documents of the real corpora in this process. Reports the medians and their ratio.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from ops import processes
from ops.bench.ingest import uploads
from ops.bench.stage import scripted_llm, stage
from ops.stack import Stack
from pipeline.breaker import Breaker
from pipeline.documents import Lane, Upload
from pipeline.generations import in_order
from pipeline.prepare import prepare
from pipeline.receive import receive_many
from pipeline.settings import Settings
from pipeline.wiring import Parts
from workers import enqueue

SLOW_SECONDS = 30.0


@contextmanager
def describing(stack: Stack, settings: Settings) -> Iterator[None]:
    """A worker on the LLM queue, for as long as the block runs."""
    command = next(c for c in processes.workers(settings) if c.name == "worker-llm")
    child = stack.child(command)
    child.start()
    try:
        time.sleep(8)  # Celery and its imports: what is measured is waiting for the model, not the start
        yield
    finally:
        child.kill()


def embed(parts: Parts, documents: list[Upload]) -> float:
    """Tokens a second of cutting and embedding these documents."""
    list(receive_many(parts.documents, "default", documents, Lane.BACKFILL))
    begun = time.perf_counter()
    prepare(parts.preparing, parts.generations, parts.tokenizer_for, parts.prepare_limits, lambda: True)
    enqueue.describe(parts.settings.broker_url)
    with parts.engine.begin() as connection:
        tokens = connection.execute(sa.text("SELECT sum(tokens) FROM passage WHERE state = 'pending'")).scalar_one()
    parts.drain(Breaker()).run(in_order(parts.generations.active()), lambda: True)
    return float(tokens) / (time.perf_counter() - begun)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    with scripted_llm(SLOW_SECONDS) as (url, control), stage(llm_base_url=url, llm_model="scripted") as (stack, parts):
        stack.settings = parts.settings
        parts.ensure_generation()
        found = uploads(size * rounds * 2, parts.limits)
        shares = [
            [Upload(key=f"{n}/{i}", title=u.title, body=u.body) for i, u in enumerate(found[n :: rounds * 2])]
            for n in range(rounds * 2)
        ]
        beside, alone = [], []
        for number in range(rounds):
            with describing(stack, parts.settings):
                beside.append(embed(parts, shares[2 * number]))
                waiting = control.get("/calls").json()["most_in_flight"]
            alone.append(embed(parts, shares[2 * number + 1]))
            print(f"round {number + 1}: beside {beside[-1]:,.0f}, alone {alone[-1]:,.0f} tokens/s")
        share = statistics.median(beside) / statistics.median(alone)
        print(f"beside a model of {SLOW_SECONDS:.0f} s ({waiting} calls in flight): {share:.3f} of the rate alone")


if __name__ == "__main__":
    main()
