"""A whole Wellhead of real processes that can be killed, frozen and flushed, and the check that must hold afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import redis
import sqlalchemy as sa

from ops import processes
from ops.services import LOOPBACK, free_ports
from ops.stack import Stack, migrate
from ops.supervisor import Child, Command, stop_all, wait_ready
from pipeline.documents import Lane, Upload, VersionText
from pipeline.errors import InfrastructureDown
from pipeline.fingerprint import passage_key
from pipeline.receive import receive
from pipeline.rules import passages_of
from pipeline.settings import Settings
from pipeline.wiring import Parts
from tests.faults.encoder import FaultEncoder
from tests.plugins.services import database_at
from workers import enqueue

ROUNDS = int(os.environ.get("ROUNDS", "3"))
REPORT = os.environ.get("WELLHEAD_FAULTS_REPORT", "")
SETTLE_SECONDS = float(os.environ.get("WELLHEAD_FAULTS_SETTLE_SECONDS", "180"))

# Short enough that a lost worker is noticed while a test waits; the proportions are those of the defaults.
SETTINGS: dict[str, Any] = {
    "embedder": "tests.faults.encoder:FaultEncoder",
    "embed_model": "fault-20",
    "passage_tokens": 64,
    "batch_tokens": 512,
    "claim_seconds": 5,
    "claim_longest_seconds": 60,
    "drain_seconds": 5,
    "drain_hard_seconds": 40,
    "sweep_seconds": 1,
    "heal_seconds": 2,
    "retry_base_seconds": 0.2,
    "max_errors": 3,
    "flip_grace_seconds": 0.5,
}
LIVE_STATES = ("searchable", "parked", "deleted")


@dataclass(kw_only=True)
class Report:
    """What one fault did: every number counted from PostgreSQL, Milvus and the encoder's own log."""

    fault: str
    injected: int = 0
    documents: int = 0
    parked: int = 0
    lost: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    claims: int = 0
    wanted: int = 0
    encoded: int = 0
    recomputed: int = 0
    fenced: int = 0
    lapsed: int = 0
    most_errors: int = 0
    most_lapses: int = 0
    recovery_seconds: float = 0.0

    def write(self) -> None:
        """One JSON line for the table of ``make faults``."""
        if REPORT:
            with Path(REPORT).open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")


@contextmanager
def services() -> Iterator[Stack]:
    """PostgreSQL, two Valkeys and Milvus Lite of one's own: tests may kill every one of them."""
    # Not under pytest's own directory: PostgreSQL's account has to reach it when the tests run as root.
    directory = Path(tempfile.mkdtemp(prefix="wellhead-faults-"))
    stack = Stack(Settings.model_validate({"data_dir": directory}), durable=False)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(directory, ignore_errors=True)


class Fleet:
    """Workers on a fresh database, an emptied broker and collections of their own."""

    def __init__(self, services: Stack, **settings: Any) -> None:
        self.services = services
        self.name = f"f{uuid.uuid4().hex[:10]}"
        admin = services.url("database_url")
        with psycopg.connect(admin.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        url = database_at(admin, self.name)
        migrate(url)
        self.redis().flushall()
        directory = services.data_dir / self.name
        given = {name: services.url(name) for name in ("broker_url", "memory_url", "milvus_uri")}
        self.settings = Settings.model_validate(
            {**SETTINGS, **given, "data_dir": directory, "database_url": url, "milvus_prefix": self.name}
            | {"api_port": free_ports(1)[0], **settings}
        )
        self.encoded_log = directory / "encoded.log"
        self.stack = Stack(self.settings)
        self.stack.start()
        self.parts = Parts(self.settings)
        self.children: dict[str, Child] = {}
        self.supervised: set[str] = set()
        self.newest: dict[tuple[str, str], str | None] = {}
        self.began = time.monotonic()

    # --- processes

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.services.url("broker_url"), socket_timeout=30)

    def start(self, *names: str) -> None:
        """``gpu``, ``light``, ``beat``; a digit behind makes another one of the same kind."""
        for name in names:
            if name not in self.children:
                self.children[name] = self._child(name)
            self.children[name].start()
            self.supervised.add(name)

    def restart_dead(self) -> None:
        """What a container's restart policy does: a worker that ended by itself is started again."""
        for name in self.supervised:
            if self.children[name].poll() is not None:
                self.children[name].start()

    def start_all(self) -> None:
        """Everything, and waits until the first document went through: from then on faults hit a running system."""
        self.start("gpu", "light", "beat")
        self.put("ready", "the fleet is up")
        self.settle()

    def _child(self, name: str) -> Child:
        kind = name.rstrip("0123456789")
        if kind == "api":
            return self.stack.child(processes.api(self.settings))
        argv = {
            "gpu": _named(processes.WORKER_GPU, kind, name),
            "light": _named(processes.WORKER_LIGHT_LLM, kind, name),
            "beat": (*processes.BEAT, "--schedule", str(self.settings.data_dir / f"{name}-schedule")),
        }[kind]
        env = {"WELLHEAD_FAULTS_ENCODED": str(self.encoded_log)}
        return self.stack.child(Command(name=name, argv=processes.local(argv), env=env, grace_seconds=25.0))

    def start_api(self) -> str:
        """The HTTP server on ``settings.api_port``; returns its URL once it answers."""
        self.start("api")
        url = f"http://{LOOPBACK}:{self.settings.api_port}"

        def answers() -> bool:
            try:
                return httpx.get(f"{url}/healthz", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        self.wait("the API answers", answers)
        return url

    def kill(self, name: str) -> None:
        """SIGKILL to the worker and its pool children, as a machine that is gone."""
        self.supervised.discard(name)
        self.children[name].kill()

    def pool_child(self, name: str) -> int:
        """The pid of a prefork worker's child that holds the model: the one of its children that uses most memory."""
        parent = self.children[name].pid
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                values = path.read_text().rpartition(")")[2].split()
                command = (path.parent / "cmdline").read_text()
            except OSError:
                continue
            if int(values[1]) == parent and "resource_tracker" not in command:
                found[int(path.parent.name)] = int(values[21])
        return max(found, key=lambda pid: found[pid]) if found else 0

    def signal(self, name: str, number: signal.Signals) -> None:
        """One signal to the whole process group of a worker."""
        os.killpg(self.children[name].pid, number)

    def restart_service(self, name: str) -> None:
        """SIGKILL to one of ``services.children`` and a fresh start on the same data and port."""
        child = self.services.children[name]
        child.kill()
        child.start()

    def ready(self, name: str, check: Callable[[], bool]) -> None:
        wait_ready(self.services.children[name], check)

    def stop(self) -> None:
        for child in self.children.values():
            if child.pid and child.poll() is None:
                os.killpg(child.pid, signal.SIGCONT)
        stop_all(self.children[n] for n in sorted(self.children))
        self.parts.engine.dispose()
        self.stack.stop()
        with psycopg.connect(self.services.url("database_url").replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    # --- uploads

    def put(self, key: str, body: str, *, lane: Lane = Lane.LIVE, tenant: str = "default", ring: bool = True) -> int:
        """One upload; ``ring=False``: the process died between commit and publish."""
        received = receive(self.parts.documents, tenant, Upload(key=key, body=body), lane)
        self.newest[tenant, key] = body
        if ring:
            enqueue.prepare(self.settings.broker_url)
        return received.version

    def delete(self, key: str, tenant: str = "default") -> None:
        self.parts.documents.delete(tenant, key)
        self.newest[tenant, key] = None

    def load(self, count: int, *, start: int = 0, paragraphs: int = 6, prefix: str = "d") -> None:
        """A backfill of ``count`` documents of about ``paragraphs`` passages each."""
        for i in range(start, start + count):
            self.put(f"{prefix}{i}", text(i, paragraphs), lane=Lane.BACKFILL, ring=i == start)

    # --- the ledger, asked directly

    def sql(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        with self.parts.engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return [dict(r) for r in result.mappings()] if result.returns_rows else []

    def one(self, statement: str, **values: Any) -> Any:
        (row,) = self.sql(statement, **values)
        return next(iter(row.values()))

    def counter(self, name: str) -> int:
        return int(self.one("SELECT coalesce(max(value), 0) AS n FROM counter WHERE name = :name", name=name))

    def state(self, key: str, tenant: str = "default") -> str:
        return str(self.parts.documents.view(tenant, key).state)

    def done(self) -> int:
        return int(self.one("SELECT count(*) AS n FROM embedding WHERE live_version IS NOT NULL"))

    def wait(self, what: str, until: Callable[[], Any], seconds: float = SETTLE_SECONDS) -> float:
        """Waits for a condition; returns how long that took. A database that is away for a moment is no failure."""
        began = time.monotonic()
        while True:
            self.restart_dead()
            try:
                if until():
                    return time.monotonic() - began
            except (InfrastructureDown, sa.exc.DBAPIError):
                pass  # the database itself may be what was killed
            if time.monotonic() - began > seconds:
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{self.diagnosis()}")
            time.sleep(0.1)

    def settle(self) -> float:
        """Waits until nothing is left to do; returns the seconds."""
        return self.wait("every document searchable or parked, no claim left", self.settled)

    def settled(self) -> bool:
        unfinished = self.sql(
            "SELECT 1 FROM prepare_job WHERE state <> 'parked' UNION ALL SELECT 1 FROM claim WHERE queue <> 'llm'"
            " UNION ALL SELECT 1 FROM passage p WHERE p.state <> 'parked' AND NOT EXISTS (SELECT FROM passage q"
            " WHERE q.generation = p.generation AND q.document = p.document AND q.version = p.version"
            " AND q.state = 'parked') UNION ALL SELECT 1 FROM passage WHERE state IN ('pending', 'claimed')"
            " UNION ALL SELECT 1 FROM generation WHERE emptied_at IS NOT NULL LIMIT 1"
        )
        return not unfinished and all(s in LIVE_STATES for s in self.states().values())

    def states(self) -> dict[tuple[str, str], str]:
        return {(t, k): self.state(k, t) for t, k in self.newest} if len(self.newest) < 8 else self._states()

    def _states(self) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for tenant in {t for t, _ in self.newest}:
            after = ""
            while page := self.parts.documents.page(tenant, after, 500, {}):
                found |= {(tenant, v.key): str(v.state) for v in page}
                after = page[-1].key
        return {k: found.get(k, "missing") for k in self.newest}

    def diagnosis(self) -> str:
        """What a person needs to see when it did not settle."""
        try:
            figures = {
                "jobs": self.sql("SELECT state, count(*) AS n, max(last_error) AS error FROM prepare_job GROUP BY 1"),
                "passages": self.sql(
                    "SELECT state, cohort IS NOT NULL AS suspect, count(*) AS n, max(errors) AS errors,"
                    " max(lapses) AS lapses, max(last_error) AS error FROM passage GROUP BY 1, 2"
                ),
                "claims": self.sql("SELECT queue, pid, deadline - clock_timestamp() AS left FROM claim"),
                "generations": self.sql("SELECT id, status, emptied_at FROM generation"),
                "counters": self.sql("SELECT * FROM counter"),
                "states": sorted(set(self.states().values())),
            }
        except (InfrastructureDown, sa.exc.DBAPIError) as error:
            figures = {"database": [str(error)]}
        logs = "\n".join(f"--- {n} ({c.poll()})\n{c.tail(12)}" for n, c in self.children.items())
        return "\n".join(f"{k}: {v}" for k, v in figures.items()) + "\n" + logs

    # --- the invariant

    def empty_trash(self) -> None:
        """Lets the sweep delete every dead key at once, both passes of it."""

        def emptied() -> bool:
            self.sql("UPDATE vector_trash SET due = clock_timestamp()")
            return not self.one("SELECT count(*) AS n FROM vector_trash")

        self.wait("the trash is emptied", emptied)

    def check(self, fault: str, *, injected: int = 1, recovery: float = 0.0) -> Report:
        """The invariant: nothing lost, nothing twice, exactly the right vectors, no claim left behind."""
        self.settle()
        self.empty_trash()
        self.settle()
        report = Report(fault=fault, injected=injected, documents=len(self.newest), recovery_seconds=round(recovery, 1))
        states = self.states()
        report.parked = sum(s == "parked" for s in states.values())
        report.lost = [k for (t, k), s in states.items() if s not in LIVE_STATES or self._wrong_end(t, k, s)]
        self._check_vectors(report)
        report.claims = self.one(
            "SELECT count(*) AS n FROM claim WHERE queue <> 'llm' AND deadline < clock_timestamp() - interval '5 s'"
        )
        report.fenced = self.counter("fenced_commits") + self.counter("fenced_passages")
        report.lapsed = self.counter("lapsed_claims")
        report.most_errors = self.one("SELECT coalesce(max(errors), 0) AS n FROM passage")
        report.most_lapses = self.one("SELECT coalesce(max(lapses), 0) AS n FROM passage")
        log = self.encoded_log
        report.encoded = sum(map(int, log.read_text().split())) if log.exists() else 0
        report.recomputed = max(0, report.encoded - report.wanted)
        report.write()
        assert (report.lost, report.missing, report.duplicated, report.wrong) == ([], [], [], []), report
        assert report.claims == 0, report
        assert report.most_errors <= self.settings.max_errors and report.most_lapses <= self.settings.max_lapses, report
        return report

    def _wrong_end(self, tenant: str, key: str, state: str) -> bool:
        return (self.newest[tenant, key] is None) != (state == "deleted")

    def _check_vectors(self, report: Report) -> None:
        """Each generation's collection against what the uploads alone say it must hold."""
        encoder = FaultEncoder()
        for generation in self.parts.generations.active():
            expected = self._expected(generation.id, generation.rule, encoder)
            stored = {k for page in self.parts.vectors.admin().keys(generation.collection) for k in page}
            report.wanted += len(expected)
            report.missing += sorted(expected.keys() - stored)
            report.duplicated += sorted(stored - expected.keys())
            rows = self.parts.vectors.fetch(generation.spec, sorted(expected.keys() & stored), vectors=True)
            for key, row in rows.items():
                ids = encoder.tokenize([expected[key][1]], "passage")
                same = row.hash == expected[key][0] and np.allclose(row.dense, encoder_vector(encoder, ids), atol=1e-3)
                report.wrong += [] if same else [key]

    def _expected(self, generation: int, rule: str, encoder: FaultEncoder) -> dict[str, tuple[str, str]]:
        """key → (hash, text) of every live version; for a document that is searchable, of its newest upload."""
        expected = {}
        for r in self.sql(
            "SELECT d.tenant, d.key, d.id, d.version, e.live_version, v.title, v.body FROM embedding e"
            " JOIN document d ON d.id = e.document JOIN document_version v ON v.document = d.id"
            " AND v.version = e.live_version WHERE e.generation = :g",
            g=generation,
        ):
            body = self.newest[r["tenant"], r["key"]] if r["version"] == r["live_version"] else r["body"]
            for p in passages_of(rule, VersionText(title=r["title"], body=body), encoder.tokenizer):
                expected[passage_key(r["id"], r["live_version"], p.ordinal)] = (p.hash, p.text)
        return expected


def _named(argv: tuple[str, ...], kind: str, name: str) -> tuple[str, ...]:
    """The command line of a product's worker under another name."""
    return tuple(f"{name}@%h" if part == f"{kind}@%h" else part for part in argv)


def encoder_vector(encoder: FaultEncoder, ids: list[list[int]]) -> np.ndarray:
    """The vector of one text without pause, log or faults."""
    return super(FaultEncoder, encoder).encode(ids).dense[0]


def text(number: int, paragraphs: int = 6) -> str:
    """A body of that many passages; no two numbers share a paragraph."""
    return "\n\n".join(
        f"Document {number} part {i}: " + " ".join(f"word{number}x{i}x{j}" for j in range(40))
        for i in range(paragraphs)
    )
