"""Passage size, dimension and model change over whole corpora, while somebody asks questions all the time.

    python -m ops.bench.reindex [--documents 390] [--corpora tidb-zh runbooks-en] [--only dimension] [--alone]

``--alone``: nobody asks, so that the fill has as much of the machine as the backfill had.

Real workers on services of their own. For every change one line: how long until the new generation served (or what
held it), tokens/s of the fill against the backfill's, lookups and how many of them failed or were answered by a
generation that did not serve, encoded passages against those the generation holds, LLM calls.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from ops import processes
from ops.bench.stage import CORPORA, corpus, stage
from ops.bundled_model import ensure
from ops.stack import Stack
from ops.supervisor import Child, stop_all
from pipeline.answers import LookupRequest
from pipeline.documents import Lane, Upload
from pipeline.errors import PipelineError
from pipeline.reading import read_file
from pipeline.receive import receive_many
from pipeline.walking import walk
from pipeline.wiring import Parts, build

CHANGES = {
    "passages of 200 tokens": {"WELLHEAD_PASSAGE_TOKENS": "200"},
    "dimension 256": {"WELLHEAD_EMBED_DIMENSION": "256"},
    "enpt weights": {"WELLHEAD_EMBED_MODEL": "multilingual-e5-small-enpt"},
}
SECONDS = 3600.0
HEAD = (
    f"{'change':24} {'end':32} {'fill s':>7} {'tokens/s':>9} {'x backf.':>8} {'lookups':>8} {'failed':>6} {'mixed':>5}"
    f" {'p50 ms':>7} {'p95 ms':>7} {'encoded':>8} {'holds':>8} {'LLM':>4}"
)


@dataclass
class Asking:
    """A closed loop of lookups for titles."""

    parts: Parts
    titles: list[str]
    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        lookup = self.parts.lookup("default")
        while self.titles and not self.ended.is_set():
            began = time.monotonic()
            try:
                lookup.lookup(LookupRequest(query=self.titles[len(self.seconds) % len(self.titles)]))
            except PipelineError:
                self.failed += 1
            self.seconds.append(time.monotonic() - began)


def main() -> None:
    """Loads the corpora, measures the backfill, then every change."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--documents", type=int, default=390)
    arguments.add_argument("--corpora", nargs="+", default=["tidb-zh", "runbooks-en"])
    arguments.add_argument("--only", default="", help="a part of one change's name")
    arguments.add_argument("--alone", action="store_true", help="no lookups")
    given = arguments.parse_args()
    corpus(*given.corpora)
    with stage(sweep_seconds=1) as (stack, parts):
        ensure(parts.settings.data_dir / "models", "multilingual-e5-small-enpt")
        uploads = documents(parts, given.corpora, given.documents)
        list(receive_many(parts.documents, "default", uploads, Lane.BACKFILL))
        with workers(stack, {}):
            until(parts, "SELECT count(*) FROM embedding WHERE live_version IS NOT NULL", len(uploads))
        backfill = rate(parts, 1)
        print(f"{len(uploads)} documents of {', '.join(given.corpora)}: backfill {backfill:,.0f} tokens/s\n{HEAD}")
        for name, env in CHANGES.items():
            if given.only in name:
                titles = [] if given.alone else [u.title for u in uploads]
                print(one_change(stack, parts, name, env, backfill, titles), flush=True)


def documents(parts: Parts, corpora: list[str], most: int) -> list[Upload]:
    """The corpora's documents, those of each spread evenly."""
    found = [
        u
        for f in walk([CORPORA / name for name in corpora])
        for u in read_file(f, parts.limits)
        if isinstance(u, Upload) and u.body
    ]
    return found[:: max(1, len(found) // most)][:most]


def one_change(stack: Stack, parts: Parts, name: str, env: dict[str, str], backfill: float, titles: list[str]) -> str:
    """One line of the table. A held generation is given up again, so that the next change starts from the same."""
    calls = scalar(parts, "SELECT coalesce(sum(calls), 0) FROM llm_usage")
    newest = scalar(parts, "SELECT max(id) FROM generation")
    reader = build(parts.settings)
    asking = Asking(reader, titles)
    thread = threading.Thread(target=asking.run)
    with workers(stack, env):
        thread.start()
        number = until(parts, "SELECT max(id) FROM generation", newest + 1)
        end = wait_for_the_end(parts, number)
        asking.ended.set()
        thread.join()
    reader.invocations.close()
    reader.engine.dispose()
    mixed = scalar(
        parts,
        "SELECT count(*) FROM tool_invocation i JOIN generation g ON g.id = i.generation WHERE i.at < g.serving_at",
    )
    encoded = scalar(parts, "SELECT sum(passages - copied) FROM embed_log WHERE generation = :g", g=number)
    holds = scalar(parts, "SELECT sum(live_total) FROM embedding WHERE generation = :g", g=number)
    calls = scalar(parts, "SELECT coalesce(sum(calls), 0) FROM llm_usage") - calls
    filled, speed = fill_seconds(parts, number), rate(parts, number)
    if end != "serves":
        parts.drops.drop(number)
    steps = statistics.quantiles(asking.seconds, n=20) if asking.seconds else [0.0] * 19
    return (
        f"{name:24} {end:32.32} {filled:7.1f} {speed:9,.0f} {speed / backfill:8.2f} {len(asking.seconds):8,}"
        f" {asking.failed:6} {mixed:5} {steps[9] * 1000:7.1f} {steps[18] * 1000:7.1f} {encoded:8,} {holds:8,} {calls:4}"
    )


@contextmanager
def workers(stack: Stack, env: dict[str, str]) -> Iterator[None]:
    """The workers of one machine with these settings on top."""
    children: list[Child] = []
    try:
        for command in processes.workers(stack.settings):
            children.append(stack.child(replace(command, env={**command.env, **env})))
            children[-1].start()
        yield
    finally:
        stop_all(children)


def wait_for_the_end(parts: Parts, number: int) -> str:
    """``serves``, or the sentence that holds the generation."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = next(g for g in parts.progress.generations() if g.id == number)
        if found.status == "serving":
            return "serves"
        if found.held and found.held.startswith("recall check"):
            return f"held: self-retrieval {(found.recall_check or {}).get('self_retrieval', 0):.2f}"
        time.sleep(0.5)
    raise SystemExit(f"generation {number} did not come to an end within {SECONDS:.0f} s")


def until(parts: Parts, sql: str, wanted: int) -> int:
    """Waits until a number is there."""
    deadline = time.monotonic() + SECONDS
    while (found := scalar(parts, sql) or 0) < wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"{found} of {wanted} after {SECONDS:.0f} s: {sql}")
        time.sleep(0.2)
    return int(found)


def fill_seconds(parts: Parts, generation: int) -> float:
    """From the first batch of a generation to its last."""
    return float(
        scalar(
            parts,
            "SELECT extract(epoch FROM max(at) - min(at - make_interval(secs => seconds))) FROM embed_log"
            " WHERE generation = :g AND tokens > 0",
            g=generation,
        )
        or 0
    )


def rate(parts: Parts, generation: int) -> float:
    """Tokens a second over that time, waiting included."""
    tokens = scalar(parts, "SELECT coalesce(sum(tokens), 0) FROM embed_log WHERE generation = :g", g=generation)
    return float(tokens) / max(0.001, fill_seconds(parts, generation))


def scalar(parts: Parts, sql: str, **values: Any) -> Any:
    """One number from the ledger."""
    with parts.engine.begin() as connection:
        return connection.execute(sa.text(sql), values).scalar()


if __name__ == "__main__":
    main()
