"""What each worker process says of itself: is its breaker open, and when did its work last succeed."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from pipeline.adapters.ledger.connection import Ledger, rows, run


@dataclass(frozen=True, kw_only=True)
class PurposeState:
    """One purpose (drain, llm) over all processes seen lately. ``last_success``: seconds ago; None: never."""

    purpose: str
    processes: int
    open: int
    failures: int
    last_success: float | None


class WorkerStateLedger(Ledger):
    """Written a few times a minute by each process, read by ``/metrics``."""

    def note(self, purpose: str, wait: float, failures: int) -> None:
        """This process's breaker: ``wait`` seconds until it lets work through, ``failures`` in a row."""
        with self._transaction() as connection:
            # Processes come and go: whatever was not heard of for a day is forgotten.
            run(connection, "DELETE FROM worker_state WHERE seen_at < clock_timestamp() - interval '1 day'")
            run(
                connection,
                "INSERT INTO worker_state (host, pid, purpose, open_until, failures, succeeded_at) VALUES (:host, :pid,"
                " :purpose, clock_timestamp() + make_interval(secs => :wait), :failures,"
                " CASE WHEN :failures = 0 THEN clock_timestamp() END) ON CONFLICT (host, pid, purpose) DO UPDATE SET"
                " open_until = excluded.open_until, failures = excluded.failures,"
                " succeeded_at = coalesce(excluded.succeeded_at, worker_state.succeeded_at),"
                " seen_at = clock_timestamp()",
                host=socket.gethostname(),
                pid=os.getpid(),
                purpose=purpose,
                wait=wait,
                failures=failures,
            )

    def states(self, seen_within: float = 600.0) -> list[PurposeState]:
        """One row a purpose. A success counts however long ago; a breaker only while its process is heard of."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT purpose, count(*) FILTER (WHERE fresh) AS processes,"
                " count(*) FILTER (WHERE fresh AND failures > 0) AS open,"
                " coalesce(max(failures) FILTER (WHERE fresh), 0) AS failures,"
                " extract(epoch FROM clock_timestamp() - max(succeeded_at))::float AS last_success"
                " FROM (SELECT *, seen_at > clock_timestamp() - make_interval(secs => :within) AS fresh"
                " FROM worker_state) s GROUP BY purpose ORDER BY purpose",
                within=seen_within,
            )
        return [PurposeState(**r) for r in found]
