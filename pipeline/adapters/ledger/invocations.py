"""``tool_invocation`` rows: written off the request path, in batches, by one thread per process."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Sequence
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, run_many
from pipeline.answers import Invocation
from pipeline.errors import InfrastructureDown

log = logging.getLogger(__name__)

_BATCH = 200
# So long a row may wait for others that are written in the same transaction.
_LINGER_SECONDS = 0.05


class InvocationLedger(Ledger):
    """Writes rows of ``tool_invocation``."""

    def write(self, invocations: Sequence[Invocation]) -> None:
        """All of them in one transaction; a row that is there already is left alone."""
        with self._transaction() as connection:
            run_many(
                connection,
                "INSERT INTO tool_invocation (id, tenant, session_id, tool_name, query, relevance_level, dedup_reason,"
                " retrieval_details, generation, calibration, latency_ms, at) VALUES (:id, :tenant, :session_id,"
                " :tool_name, :query, :relevance_level, :dedup_reason, CAST(:retrieval_details AS jsonb), :generation,"
                " :calibration, CAST(:latency_ms AS jsonb), :at) ON CONFLICT (id) DO NOTHING",
                [_row(i) for i in invocations],
            )


class InvocationWriter:
    """A bounded buffer before an :class:`InvocationLedger`. ``put`` waits when it is full; nothing is dropped.

    A clean stop (``close``) loses nothing while PostgreSQL answers; kill -9 loses what is in the buffer:
    at most ``capacity`` rows, usually those of the last tenth of a second. The thread starts with the first row,
    so a process may fork before.
    """

    def __init__(self, ledger: InvocationLedger, capacity: int = 1000, retry_seconds: float = 0.5) -> None:
        self._ledger = ledger
        self._retry_seconds = retry_seconds
        self._queue: queue.Queue[Invocation] = queue.Queue(capacity)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._given_up = threading.Event()

    def put(self, invocation: Invocation) -> None:
        """Takes one row; waits while the buffer is full."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="invocations", daemon=True)
                    self._thread.start()
        self._queue.put(invocation)

    def flush(self) -> None:
        """Returns when every row that was put is written."""
        self._queue.join()

    def close(self, timeout: float = 10.0) -> int:
        """Writes what is left and stops; returns how many rows could not be written within ``timeout`` seconds."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout)
            self._given_up.set()
            self._thread = None
        lost = self._queue.unfinished_tasks
        if lost:
            log.error("%d rows of tool_invocation could not be written", lost)
        return lost

    def _work(self) -> None:
        while not (self._closing.is_set() and self._queue.empty()):
            try:
                batch = [self._queue.get(timeout=0.1)]
            except queue.Empty:
                continue
            self._closing.wait(_LINGER_SECONDS)
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            if not self._written(batch):
                return
            for _ in batch:
                self._queue.task_done()

    def _written(self, batch: list[Invocation]) -> bool:
        while True:
            try:
                self._ledger.write(batch)
            except InfrastructureDown as error:
                log.warning("%d rows of tool_invocation wait: %s", len(batch), error)
            except Exception:  # a row that PostgreSQL refuses must not hold the others back
                if len(batch) > 1:
                    middle = len(batch) // 2
                    return self._written(batch[:middle]) and self._written(batch[middle:])
                log.exception("a row of tool_invocation was refused: %s", batch[0].id)
                return True
            else:
                return True
            if self._given_up.wait(self._retry_seconds):
                return False


def _row(invocation: Invocation) -> dict[str, Any]:
    return {
        **vars(invocation),
        "retrieval_details": json.dumps(invocation.retrieval_details, ensure_ascii=False),
        "latency_ms": json.dumps(invocation.latency_ms),
    }
