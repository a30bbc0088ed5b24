"""Upload to searchable of one document a second, idle and while a backfill runs, in one run.

    python -m ops.bench.live_under_backfill [passages of the backfill] [uploads]

Real workers on a real stack with the bundled encoder. Reports p50 and p95 of both, and their ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import sqlalchemy as sa

from ops import processes
from ops.bench.stage import corpus, stage
from ops.stack import Stack
from pipeline.documents import Lane, State, Upload
from pipeline.receive import receive, receive_many
from pipeline.wiring import Parts
from workers import enqueue


def searchable_after(parts: Parts, number: str) -> float:
    """Seconds from the upload's commit until the document serves."""
    body = f"# Pump {number}\n\nPump {number} stops when its valve is shut. Open valve {number} and start it again."
    begun = time.perf_counter()
    receive(parts.documents, "default", Upload(key=f"live/{number}", title=f"Pump {number}", body=body), Lane.LIVE)
    enqueue.prepare(parts.settings.broker_url)
    while parts.documents.view("default", f"live/{number}").state is not State.SEARCHABLE:
        time.sleep(0.005)
    return time.perf_counter() - begun


def one_a_second(parts: Parts, name: str, count: int) -> list[float]:
    taken = []
    for number in range(count):
        taken.append(searchable_after(parts, f"{name}{number}"))
        time.sleep(max(0.0, 1.0 - taken[-1]))
    return taken


def pending(parts: Parts) -> int:
    with parts.engine.begin() as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM passage WHERE state <> 'done'")).scalar_one())


def backfill(parts: Parts, passages: int) -> None:
    files = corpus("tidb-zh", "runbooks-en")
    number = 0
    while pending(parts) < passages:
        uploads = [
            Upload(key=f"b/{number}/{f.stem}", title=f.stem, body=f"{number}\n{f.read_text('utf-8', 'replace')}")
            for f in files
        ]
        list(receive_many(parts.documents, "default", uploads, Lane.BACKFILL))
        number += 1
        for _ in range(600):
            enqueue.prepare(parts.settings.broker_url)
            time.sleep(1)
            with parts.engine.begin() as connection:
                if not connection.execute(sa.text("SELECT count(*) FROM prepare_job")).scalar_one():
                    break
            if pending(parts) >= passages:
                break


def settle_cutting(parts: Parts) -> None:
    """The question is what a backlog of passages does to uploads, not what cutting it costs."""
    for _ in range(300):
        with parts.engine.begin() as connection:
            if not connection.execute(sa.text("SELECT count(*) FROM prepare_job")).scalar_one():
                return
        time.sleep(1)


def report(name: str, taken: list[float]) -> float:
    p95 = statistics.quantiles(taken, n=20)[-1]
    print(f"{name}: {len(taken)} uploads, p50 {statistics.median(taken) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")
    return p95


def workers(stack: Stack, parts: Parts) -> list[subprocess.Popen[bytes]]:
    made = []
    for command in processes.workers(parts.settings):
        log = (parts.settings.data_dir / f"{command.name}.log").open("wb")
        made.append(subprocess.Popen(command.argv, env={**stack.environment(), **command.env}, stdout=log, stderr=log))
    return made


def main() -> None:
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    with stage() as (stack, parts):
        running = workers(stack, parts)
        try:
            for warm in range(3):
                searchable_after(parts, f"warm{warm}")
            idle = report("idle", one_a_second(parts, "idle", count))
            backfill(parts, passages)
            settle_cutting(parts)
            before = pending(parts)
            busy = report(f"with {before} passages pending", one_a_second(parts, "busy", count))
            print(f"backfill went on: {before - pending(parts)} passages meanwhile")
            with parts.engine.begin() as connection:
                batch = connection.execute(
                    sa.text("SELECT sum(seconds) / nullif(sum(slots), 0) FROM embed_log")
                ).scalar_one()
            one_batch = float(batch or 0) * parts.settings.batch_tokens
            print(
                f"one batch {one_batch * 1000:.0f} ms; ratio (p95 busy − one batch) / p95 idle: {(busy - one_batch) / idle:.2f}"
            )
        finally:
            for each in running:
                each.terminate()
            for each in running:
                each.wait()


if __name__ == "__main__":
    main()
