"""What a sweep costs when there is nothing to do: a million fresh documents on a PostgreSQL of its own.

``python -m ops.bench.sweep [--documents 1000000]``. Prints the seconds of every query that repeats or that a command
waits for, and which of them read a table from its beginning to its end.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ops.stack import Stack, migrate
from pipeline.adapters.ledger import jobs as jobs_sql
from pipeline.adapters.ledger import progress as progress_sql
from pipeline.adapters.ledger import sweeping as sweeping_sql
from pipeline.fingerprint import Space
from pipeline.generation import SCHEMA_VERSION
from pipeline.settings import Settings
from pipeline.wiring import Parts

SPACE = Space(
    embedder="none", model="none", weights="0", dimension=8, pooling="mean", normalised=True, query_prefix="",
    passage_prefix="", precision="fp32",
)  # fmt: skip
DOCUMENTS = """
INSERT INTO document (tenant, key, kind, version, updated_at)
SELECT 'default', 'd' || i, 'article', 1, clock_timestamp() - interval '10 minutes' FROM generate_series(1, :n) i
"""
EMBEDDINGS = """
INSERT INTO embedding (generation, document, target_version, live_version, live_total, total, done, tokens, live_tokens)
SELECT :g, id, 1, 1, 4, 4, 4, 1200, 1200 FROM document
"""


def main() -> None:
    """Fills the tables, then times every query five times."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--documents", type=int, default=1_000_000)
    count = arguments.parse_args().documents
    directory = Path(tempfile.mkdtemp(prefix="wellhead-sweep-"))
    try:
        with Stack(Settings.model_validate({"data_dir": directory}), durable=False, only=("database_url",)) as stack:
            url = stack.url("database_url")
            migrate(url)
            parts = Parts(Settings.model_validate({"data_dir": directory, "database_url": url}))
            began = time.monotonic()
            fill(parts, count)
            print(f"{count:,} documents in two generations after {time.monotonic() - began:.0f} s")
            for name, act in measured(parts):
                took = [timed(act) for _ in range(5)]
                print(f"{name:58} first {took[0] * 1000:9.1f} ms   median {statistics.median(took) * 1000:9.1f} ms")
            for name, sql, values in plans():
                print(f"{name:58} {scans(parts, sql, values)}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fill(parts: Parts, count: int) -> None:
    """Two generations, one serving and one complete that is still building; everything in them is fresh."""
    made = [parts.generations.ensure(SPACE, rule, SCHEMA_VERSION, "bench") for rule in ("r1:400", "r1:200")]
    with parts.engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
        connection.execute(sa.text(DOCUMENTS), {"n": count})
        for generation in made:
            connection.execute(sa.text(EMBEDDINGS), {"g": generation.id})
        connection.execute(sa.text("UPDATE job SET finished_at = clock_timestamp()"))
    with parts.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("SET statement_timeout = 0"))
        connection.execute(sa.text("VACUUM ANALYZE"))


def measured(parts: Parts) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every tick's queries together, then those that a command or the swap waits for."""

    def tick() -> None:
        parts.sweeping.lapse_claims(2)
        parts.sweeping.complete_unflipped()
        parts.sweeping.pending()
        parts.sweeping.requeue_forgotten()
        parts.generations.rebuilt()
        parts.sweeping.due_trash()
        parts.jobs.take_job("fill:", 60)

    def all_changes_seen() -> None:
        while True:
            with parts.engine.begin() as connection:
                before = connection.execute(sa.text("SELECT cursor FROM job WHERE name = 'changes'")).scalar()
            parts.sweeping.requeue_forgotten(limit=100_000)
            with parts.engine.begin() as connection:
                if before == connection.execute(sa.text("SELECT cursor FROM job WHERE name = 'changes'")).scalar():
                    return

    serving, building = parts.generations.active()
    yield "a tick while the changes of the last minutes are looked at", tick
    yield "all changes looked at (first: a million of them)", all_changes_seen
    yield "a tick of the sweep with nothing to do", tick
    yield "the fill's anti-join over a complete generation", lambda: parts.jobs.fill_page(building.id, 0, 500, 20_000)
    yield "the gate: documents behind", lambda: parts.swaps.behind(serving.id, building.id)
    yield "wellhead sweep --dry-run, nothing stale", lambda: parts.progress.stale(building.fingerprint)
    yield "wellhead sweep --dry-run, everything stale", lambda: parts.progress.stale("another")
    yield "GET /v1/generations", parts.progress.generations


def plans() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The statements whose plans are worth a look."""
    yield "reads: untargeted or parked documents", sweeping_sql.UNTARGETED, {"limit": 2000, "retry": 30.0}
    yield "reads: changed documents", sweeping_sql.CHANGED, {"limit": 2000}
    yield "reads: the fill", jobs_sql.LACKING, {"generation": 2, "cursor": 0, "page": 500}
    yield "reads: stale documents", progress_sql.STALE, {"fingerprint": "another"}


def timed(act: Callable[[], Any]) -> float:
    """Seconds."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def scans(parts: Parts, sql: str, values: dict[str, Any]) -> str:
    """The ways in which the plan reads the big tables."""
    with parts.engine.begin() as connection:
        (plan,) = connection.execute(sa.text("EXPLAIN (FORMAT JSON) " + sql), values).one()
    found = {f"{node['Relation Name']}: {node['Node Type']}" for node in _nodes(plan[0]["Plan"])}
    return ", ".join(sorted(f for f in found if f.startswith(("document", "embedding"))))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


if __name__ == "__main__":
    main()
