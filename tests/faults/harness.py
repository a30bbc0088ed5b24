"""A whole Wellhead of real processes that can be killed, frozen and flushed."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
import sqlalchemy as sa

from ops import processes
from ops.services import LOOPBACK, free_ports
from ops.stack import Stack, migrate
from ops.supervisor import Child, Command, stop_all, wait_ready
from pipeline.documents import Lane, Upload
from pipeline.errors import InfrastructureDown
from pipeline.receive import receive
from pipeline.settings import Settings
from pipeline.wiring import Parts
from tests.plugins.services import database_at
from workers import enqueue

ROUNDS = int(os.environ.get("ROUNDS", "3"))
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

    def empty_trash(self) -> None:
        """Lets the sweep delete every dead key at once, both passes of it."""

        def emptied() -> bool:
            self.sql("UPDATE vector_trash SET due = clock_timestamp()")
            return not self.one("SELECT count(*) AS n FROM vector_trash")

        self.wait("the trash is emptied", emptied)


def _named(argv: tuple[str, ...], kind: str, name: str) -> tuple[str, ...]:
    """The command line of a product's worker under another name."""
    return tuple(f"{name}@%h" if part == f"{kind}@%h" else part for part in argv)


def text(number: int, paragraphs: int = 6) -> str:
    """A body of that many passages; no two numbers share a paragraph."""
    return "\n\n".join(
        f"Document {number} part {i}: " + " ".join(f"word{number}x{i}x{j}" for j in range(40))
        for i in range(paragraphs)
    )
