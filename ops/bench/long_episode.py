"""What a recall costs whose best episode has thousands of events, beside encoding the question.

    python -m ops.bench.long_episode [events] [recalls]

In process, on real services. Every question names another event of the long episode, and its number to the letter;
a page is bounded, so the answer stays small. Reports p50 and p99 of the recall without the encoder, and of the pages
behind the first.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta

import numpy as np

from ops.bench.stage import make_searchable, stage
from pipeline.documents import Block, Event, Upload
from pipeline.recall_answers import RecallAnswer, RecallRequest

BEGAN = datetime(2026, 3, 1, 8, tzinfo=UTC)
THINGS = ("pump", "valve", "router", "门禁", "发票", "backup", "打印机", "meeting room")
SAID = (
    "was checked and works again",
    "has to be replaced next week",
    "坏了，明天再修",
    "已经处理完了",
    "needs a new part",
)
OTHERS = 40


def episode(key: str, events: int) -> Upload:
    """Two people about things with numbers."""
    told = itertools.cycle(itertools.product(THINGS, SAID))
    return Upload(
        key=key,
        title=f"Shift log {key}",
        events=tuple(
            Event(
                at=BEGAN + timedelta(minutes=n),
                source="alice" if n % 2 else "bob",
                blocks=(Block(type="text", text=f"{thing} {n:05}-{key} {said}"),),
            )
            for n, (thing, said) in zip(range(events), told, strict=False)
        ),
    )


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    recalls = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with stage() as (_, parts):
        uploads = [episode("long", events), *(episode(f"s{n}", 20) for n in range(OTHERS))]
        begun = time.perf_counter()
        written = make_searchable(parts, uploads)
        print(f"{events} + {OTHERS} × 20 events: {written} passages in {time.perf_counter() - begun:.1f} s")
        memory, space = parts.recall("default"), parts.embedder.space
        first: list[float] = []
        later: list[float] = []

        def timed(request: RecallRequest, into: list[float]) -> RecallAnswer:
            if request.query:
                parts.query_vectors.vector(space, request.query)  # from here on it is remembered
            begun = time.perf_counter()
            answer = memory.recall(request)
            into.append((time.perf_counter() - begun) * 1000)
            return answer

        wrong = 0
        for n in range(recalls):
            at = n * 37 % events
            asked = f"what happened to {THINGS[n % len(THINGS)]} {at:05}-long" if n % 2 else f"{at:05}-long 怎么样了"
            answer = timed(RecallRequest(query=asked), first)
            wrong += answer.episodes[0].key != "long"
            if answer.cursor is not None:
                timed(RecallRequest(cursor=answer.cursor), later)
        for name, took in (("recall", first), ("next page", later)):
            p99 = float(np.percentile(took, 99))
            print(
                f"{name}: p50 {statistics.median(took):.0f} ms, p99 {p99:.0f} ms without the encoder, {len(took)} times"
            )
        print(f"not the long episode first: {wrong} of {recalls}")


if __name__ == "__main__":
    main()
