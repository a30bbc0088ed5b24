"""A fleet that changes its encoder or rule while somebody asks questions all the time."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg

from ops.stack import Stack, migrate
from ops.supervisor import stop_all
from pipeline.answers import LookupRequest
from pipeline.documents import Lane, Upload
from pipeline.errors import PipelineError
from pipeline.fingerprint import parse_passage_key
from pipeline.generations import in_order
from pipeline.prepare import prepare
from pipeline.receive import receive
from pipeline.settings import Settings
from pipeline.wiring import Parts
from tests.faults.harness import Fleet
from tests.plugins.services import database_at
from workers import enqueue

FIRST: dict[str, Any] = {
    "embedder": "tests.acceptance.words:Words",
    "embed_model": "words-a",
    "embed_dimension": 1024,
    "passage_tokens": 64,
    "sweep_seconds": 0.5,
    "heal_seconds": 1,
    "llm_domain_quiet_seconds": 0.2,
}


def body(number: int, paragraphs: int = 4, edition: int = 0) -> str:
    """No two documents or editions share a paragraph."""
    return "\n\n".join(
        f"Pump{number} edition{edition} chapter {i}: " + " ".join(f"w{number}x{edition}x{i}x{j}" for j in range(30))
        for i in range(paragraphs)
    )


@dataclass
class Asked:
    """One lookup: what was asked for, what came, and which collections and spaces were used for it."""

    expected: str
    found: str | None = None
    invocation: str | None = None
    degraded: bool = False
    error: str | None = None
    used: set[tuple[str, str, str | None]] = field(default_factory=set)


class Watched:
    """The vector store, with a note of what each thread searched."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.thread = threading.local()

    def search(self, spec: Any, query: Any, *rest: Any) -> Any:
        self.thread.used.add((spec.name, spec.space, None if query is None else query.space))
        return self._store.search(spec, query, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Reindexing(Fleet):
    """Processes of one deployment, documents with titles, and lookups in this process, as an API server makes them."""

    def __init__(self, services: Stack, **settings: Any) -> None:
        super().__init__(services, **{**FIRST, **settings})
        self.reader = Parts(self.settings)
        self.watched = Watched(self.reader.vectors)
        self.reader.__dict__["vectors"] = self.watched
        self.editions: dict[str, int] = {}
        self.asked: list[Asked] = []

    def upload(self, number: int, edition: int = 0, *, ring: bool = True) -> None:
        key, text = f"pump{number}", body(number, edition=edition)
        upload = Upload(key=key, title=f"Manual of Pump{number}", body=text)
        receive(self.parts.documents, "default", upload, Lane.LIVE)
        self.newest["default", key] = text
        self.editions[key] = edition
        if ring:
            enqueue.prepare(self.settings.broker_url)

    def begin(self, documents: int) -> None:
        """The first generation, with so many documents in it."""
        self.start("gpu", "light", "beat")
        for i in range(documents):
            self.upload(i, ring=i % 10 == 0)
        self.wait("the first generation serves", lambda: self.parts.generations.serving())
        self.settle()

    def roll_out(self, *, kill: bool = False, **settings: Any) -> None:
        """All workers end and start again with other settings."""
        ended = [self.children.pop(name) for name in ("beat", "light", "gpu")]
        if kill:
            for child in ended:
                child.kill()
        stop_all(ended)
        self.settings = self.settings.model_copy(update=settings)
        # The fields that were given have to travel to the children.
        self.settings = Settings.model_validate(
            {n: getattr(self.settings, n) for n in self.settings.model_fields_set | settings.keys()}
        )
        self.stack.settings = self.settings
        self.start("gpu", "light", "beat")

    def serving(self) -> int:
        serving = self.parts.generations.serving()
        return 0 if serving is None else serving.id

    def generations(self) -> list[dict[str, Any]]:
        return self.sql("SELECT id, status, fingerprint, held, recall_check, compared FROM generation ORDER BY id")

    def diagnosis(self) -> str:
        return f"{self.generations()}\n{super().diagnosis()}"

    # --- lookups

    @contextmanager
    def asking(self, threads: int = 2) -> Iterator[None]:
        """A closed loop of lookups, each for a document that is there all the time."""
        ended = threading.Event()
        running = [threading.Thread(target=self._ask_on, args=(ended, n)) for n in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in running:
                thread.join(timeout=60)
            self.reader.invocations.close()

    def _ask_on(self, ended: threading.Event, offset: int) -> None:
        lookup = self.reader.lookup("default")
        for turn in itertools.count(offset):
            if ended.is_set():
                return
            # The upper half is never edited or deleted.
            number = len(self.editions) // 2 + turn * 7 % max(1, len(self.editions) // 2)
            asked = Asked(f"pump{number}")
            self.watched.thread.used = asked.used
            try:
                answer = lookup.lookup(LookupRequest(query=f"w{number}x0x1x3 w{number}x0x1x4 w{number}x0x1x5 chapter"))
                asked.found = answer.primary.key if answer.primary else None
                asked.invocation, asked.degraded = answer.invocation_id, bool(answer.degraded)
            except PipelineError as error:
                asked.error = f"{type(error).__name__}: {error}"
            self.asked.append(asked)
            time.sleep(0.01)

    def failed(self, *, while_degraded: bool = False) -> list[Asked]:
        """Lookups that raised, or did not find what is there. A degraded one may find less."""
        return [a for a in self.asked if a.error or (a.found != a.expected and not (while_degraded and a.degraded))]

    def mixed(self) -> list[Asked]:
        """Lookups that used anything but the one generation that their row names, or asked before it served."""
        rows = self.sql(
            "SELECT i.id, g.collection, i.at >= g.serving_at AS served FROM tool_invocation i"
            " JOIN generation g ON g.id = i.generation"
        )
        by_id = {r["id"]: r for r in rows}
        return [a for a in self.asked if a.invocation and not _pure(a, by_id.get(a.invocation))]

    def answered_by(self) -> Counter[int]:
        """generation → lookups."""
        rows = self.sql("SELECT generation, count(*) AS n FROM tool_invocation GROUP BY 1")
        return Counter({r["generation"]: r["n"] for r in rows})

    # --- what was encoded, and what is there

    def encodings(self, model: str) -> Counter[str]:
        """How often each passage was encoded by a model, killed workers included."""
        lines = self.encoded_log.read_text().splitlines() if self.encoded_log.exists() else []
        return Counter(line.split()[1] for line in lines if line.split()[0] == model)

    def contents(self, parts: Parts | None = None) -> dict[tuple[str, int], tuple[str, list[float]]]:
        """(key, ordinal) → (hash, vector) of everything in the serving collection."""
        parts = parts or self.parts
        serving = parts.generations.serving()
        assert serving is not None
        with parts.engine.begin() as connection:
            names = dict(connection.exec_driver_sql("SELECT id, key FROM document").all())
        keys = [k for page in parts.vectors.admin().keys(serving.collection) for k in page]
        found = {}
        for key, row in parts.vectors.fetch(serving.spec, keys, vectors=True).items():
            document, _, ordinal = parse_passage_key(key)
            place = (names.get(document, f"? {key}"), ordinal)
            assert place not in found, f"two versions of {place}"
            found[place] = (row.hash, [round(float(x), 4) for x in np.asarray(row.dense)])
        return found

    def fresh_build(self) -> dict[tuple[str, int], tuple[str, list[float]]]:
        """The same contents, made from the final documents alone on an empty database."""
        name = f"{self.name}_fresh"
        admin = self.services.url("database_url")
        with psycopg.connect(admin.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        migrate(database_at(admin, name))
        changes = {"database_url": database_at(admin, name), "milvus_prefix": name}
        parts = Parts(self.settings.model_copy(update=changes))
        try:
            parts.ensure_generation()
            for (tenant, key), text in self.newest.items():
                if text is not None:
                    upload = Upload(key=key, title=f"Manual of P{key[1:]}", body=text)
                    receive(parts.documents, tenant, upload, Lane.LIVE)
            while parts.sweeping.pending()["prepare"] or parts.sweeping.pending()["gpu"]:
                prepare(parts.preparing, parts.generations, parts.tokenizer_for, parts.prepare_limits, lambda: True)
                parts.drain(parts_breaker()).run(in_order(parts.generations.active()), lambda: True)
            return self.contents(parts)
        finally:
            parts.engine.dispose()
            with psycopg.connect(admin.replace("+psycopg", ""), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        self.reader.engine.dispose()
        super().stop()


def parts_breaker() -> Any:
    from pipeline.breaker import Breaker

    return Breaker()


def _pure(asked: Asked, row: dict[str, Any] | None) -> bool:
    if row is None or not row["served"]:
        return False
    collections = {name for name, _, _ in asked.used}
    return collections <= {row["collection"]} and all(query in (None, space) for _, space, query in asked.used)
