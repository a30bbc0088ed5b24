"""What a lookup costs beside encoding the question and searching Milvus, and how many a second two cores answer.

    python -m ops.bench.lookup [documents] [seconds]

Over HTTP, against the API as a process of its own, with action memory: every question belongs to a session. First new
questions at 20 a second (p50 and p99 of each stage, from ``tool_invocation.latency_ms``), then as many as eight
clients get answered of questions whose vectors are cached. ``WELLHEAD_MILVUS_URI`` names a real Milvus server.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import numpy as np
import sqlalchemy as sa

from ops import processes
from ops.bench.ingest import uploads
from ops.bench.stage import make_searchable, stage
from ops.stack import Stack
from ops.supervisor import stop_all, wait_ready
from ops.up import is_ready
from pipeline.documents import Upload
from pipeline.wiring import Parts

RATE, CLIENTS = 20, 8
# What is not the lookup's own: the encoder and Milvus.
ELSEWHERE = ("encode", "search")


def ingest(parts: Parts, documents: int) -> list[str]:
    """Makes the documents searchable in this process; returns their titles."""
    found = uploads(documents, parts.limits)
    named = [Upload(key=str(i), title=u.title, body=u.body) for i, u in enumerate(found)]
    make_searchable(parts, named)
    return [u.title for u in named]


@contextmanager
def serving(stack: Stack, parts: Parts) -> Iterator[str]:
    """The API's address, once it is ready."""
    api = stack.child(processes.api(parts.settings))
    url = f"http://127.0.0.1:{parts.settings.api_port}"
    api.start()
    try:
        wait_ready(api, lambda: is_ready(f"{url}/readyz"))
        yield url
    finally:
        stop_all([api])


def ask(client: httpx.Client, question: str, session: str) -> None:
    client.post("/v1/lookup", json={"query": question, "session_id": session}).raise_for_status()


def paced(url: str, questions: list[str], seconds: float) -> None:
    """New questions at a fixed rate, whether or not the ones before were answered."""
    asked = itertools.cycle(questions)
    begun = time.perf_counter()
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(CLIENTS) as pool:
        sent = []
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            sent.append(pool.submit(ask, client, f"{next(asked)} {number}", f"paced-{number // 5}"))
        for each in sent:
            each.result()


def stages(parts: Parts) -> Mapping[str, list[float]]:
    """Milliseconds of each stage of the paced lookups, and of all that is the lookup's own."""
    time.sleep(2)  # rows are written off the request path
    with parts.engine.begin() as connection:
        rows = connection.execute(
            sa.text("SELECT latency_ms FROM tool_invocation WHERE session_id LIKE 'paced-%' ORDER BY at")
        ).scalars()
        # The first ones meet cold caches in the new process.
        taken = list(rows)[20:]
    found = {name: [row.get(name, 0.0) for row in taken] for name in sorted({n for row in taken for n in row})}
    own = [row["total"] - sum(row.get(n, 0.0) for n in ELSEWHERE) for row in taken]
    return {**found, "own": own}


def flat_out(url: str, questions: list[str], seconds: float) -> float:
    """Lookups a second that ``CLIENTS`` get answered of known questions, each client in new sessions."""
    end, counts = time.perf_counter() + seconds, [0] * CLIENTS

    def one(number: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            for turn in itertools.count():
                if time.perf_counter() >= end:
                    return
                ask(client, questions[(turn * CLIENTS + number) % len(questions)], f"flat-{number}-{turn // 5}")
                counts[number] += 1

    threads = [threading.Thread(target=one, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def main() -> None:
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    with stage() as (stack, parts):
        titles = ingest(parts, documents)
        with serving(stack, parts) as url:
            paced(url, titles, seconds)
            figures = {
                name: {f"p{p}": round(float(np.percentile(taken, p)), 2) for p in (50, 99)}
                for name, taken in stages(parts).items()
            }
            known = titles[:64]
            flat_out(url, known, 3)  # their vectors are cached from here on
            rate = flat_out(url, known, seconds)
        info = parts.vectors.admin().info()
    report = {
        "documents": len(titles),
        "milvus": info.version,
        "lexical": info.lexical,
        f"ms a stage at {RATE}/s": figures,
        f"lookups/s, {CLIENTS} clients, vectors cached": round(rate, 1),
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
