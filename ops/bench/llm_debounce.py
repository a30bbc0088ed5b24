"""How many LLM calls a storm of uploads costs: N documents into 10 domains, 16 calls at once, 200 ms each.

``python -m ops.bench.llm_debounce DATABASE_URL [DOCUMENTS] [LATENCY]`` (an empty, migrated database). Uploads are
received and prepared here (no encoder: the GPU queue makes no call), then described and summarised by 16 threads
that do what 16 Celery tasks do, with the debounce of the defaults and a tick every 5 s. Reported per domain: the
calls in the worst five minutes.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

import httpx
import sqlalchemy as sa

from ops.bench.stage import scripted_llm
from pipeline.breaker import Breaker
from pipeline.documents import Lane, Upload
from pipeline.receive import receive_many
from pipeline.settings import Settings
from pipeline.wiring import Parts, build

DOMAINS = 10
THREADS = 16
BATCH = 100
# Received documents have no generation here: what prepare does for the LLM queue is this statement.
PREPARED = """
WITH done AS (DELETE FROM prepare_job RETURNING document, tenant, lane)
INSERT INTO describe_job (document, version, tenant, lane) SELECT d.id, d.version, done.tenant, done.lane
FROM done JOIN document d ON d.id = done.document
WHERE d.described_version IS DISTINCT FROM d.version
ON CONFLICT (document) DO UPDATE SET version = excluded.version, state = 'pending', token = NULL
"""


def uploads(parts: Parts, count: int, seconds: float) -> None:
    """``count`` uploads spread over ``seconds``."""
    began = time.monotonic()
    for start in range(0, count, BATCH):
        batch = [_upload(i) for i in range(start, min(start + BATCH, count))]
        list(receive_many(parts.documents, "default", batch, Lane.BACKFILL))
        _sql(parts, PREPARED)
        time.sleep(max(0.0, began + seconds * (start + len(batch)) / count - time.monotonic()))


def _upload(i: int) -> Upload:
    body = f"# Case {i}\n\nWhat to do when part {i} of the system fails in way {i * 7}.\n"
    return Upload(key=f"d{i % DOMAINS}/{i}", body=body, title=f"Case {i}", domain=f"domain{i % DOMAINS}")


def work(parts: Parts, stop: threading.Event) -> None:
    """What one Celery thread does: describe tasks back to back, each taking due domains first."""
    breaker = Breaker()
    while not stop.is_set():
        end = time.monotonic() + 10
        more = lambda end=end: time.monotonic() < end and not stop.is_set()  # noqa: E731
        if parts.llm.refresher(breaker).run(more) + parts.llm.describer(breaker).run(more) == 0:
            time.sleep(0.5)


def main() -> None:
    url = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    latency = float(sys.argv[3]) if len(sys.argv) > 3 else 0.2
    with scripted_llm(latency) as (endpoint, control):
        given = {"llm_base_url": endpoint, "llm_model": "scripted", "database_pool": 24}
        parts = build(Settings(database_url=url, llm_calls_per_hour=10**9, llm_tokens_per_day=10**9, **given))
        storm(parts, control, count)


def storm(parts: Parts, control: httpx.Client, count: int) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(parts, stop)) for _ in range(THREADS)]
    threads.append(threading.Thread(target=_tick, args=(parts, stop)))
    began = time.monotonic()
    for thread in threads:
        thread.start()
    uploads(parts, count, 60.0)
    uploaded = time.monotonic() - began
    _until_quiet(parts)
    done = time.monotonic() - began
    first = _calls(control)
    uploads(parts, count, 1.0)
    _until_quiet(parts)
    stop.set()
    for thread in threads:
        thread.join()
    again = _calls(control)
    print(
        json.dumps(
            {
                "documents": count,
                "uploaded_s": round(uploaded, 1),
                "described_and_summarised_s": round(done, 1),
                "most_in_flight": control.get("/calls").json()["most_in_flight"],
                "describe_calls": sum(name == "" for name, _ in first),
                "domain_calls": sum(name != "" for name, _ in first),
                "most_calls_of_a_domain_in_5_min": _worst(first),
                "calls_for_unchanged_uploads": len(again) - len(first),
            }
        )
    )


def _tick(parts: Parts, stop: threading.Event) -> None:
    while not stop.wait(5.0):
        parts.llm.tick()


def _until_quiet(parts: Parts) -> None:
    while _sql(parts, "SELECT (SELECT count(*) FROM describe_job) + (SELECT count(*) FROM domain_change)"):
        time.sleep(1.0)


def _calls(control: httpx.Client) -> list[tuple[str, float]]:
    """(domain or "", time) of each call; a domain is known by the first key of its titles."""
    found = []
    for call in control.get("/calls").json()["calls"]:
        prompt = call["request"]["messages"][1]["content"]
        number = prompt.partition("<title>Case ")[2].partition("<")[0]
        found.append((f"domain{int(number) % DOMAINS}" if prompt.startswith("<domain") else "", call["at"]))
    return found


def _worst(calls: list[tuple[str, float]]) -> int:
    worst = Counter[str]()
    for name in {n for n, _ in calls if n}:
        times = sorted(at for n, at in calls if n == name)
        worst[name] = max(sum(at <= t < at + 300 for t in times) for at in times)
    return max(worst.values(), default=0)


def _sql(parts: Parts, statement: str) -> int:
    with parts.engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return int(result.scalar() or 0) if result.returns_rows else 0


if __name__ == "__main__":
    main()
