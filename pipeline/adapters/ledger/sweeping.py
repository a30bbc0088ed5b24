"""What the sweep asks PostgreSQL: lapsed claims, forgotten rows, trash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.claims import lapse
from pipeline.adapters.ledger.connection import Ledger, count_event, one, rows, run
from pipeline.adapters.ledger.passages import note_parked
from pipeline.documents import Lane
from pipeline.work import Complete, Trash

# queue → its work table
WORK = {"gpu": "passage", "prepare": "prepare_job", "llm": "describe_job"}


class SweepLedger(Ledger):
    """The ``Sweeping`` port on PostgreSQL."""

    def tick(self, every: float) -> bool:
        """Is it this sweep's turn? False when another one began less than ``every`` seconds ago."""
        with self._transaction() as connection:
            return (
                run(
                    connection,
                    "INSERT INTO job (name, not_before, finished_at) VALUES ('tick:sweep', clock_timestamp()"
                    " + make_interval(secs => :every), clock_timestamp()) ON CONFLICT (name) DO UPDATE SET"
                    " not_before = excluded.not_before, finished_at = excluded.finished_at"
                    " WHERE job.not_before <= clock_timestamp()",
                    every=every,
                )
                == 1
            )

    def lapse_claims(self, max_lapses: int, dead_pids: Sequence[int] = ()) -> None:
        """Takes back what lost workers held."""
        for queue, table in WORK.items():
            with self._transaction() as connection:
                parked = lapse(connection, queue, table, max_lapses, dead_pids)
                if parked and table == "passage":
                    note_parked(connection, parked)

    def holders(self, host: str) -> list[int]:
        """The process ids on this host that hold claims."""
        with self._transaction() as connection:
            return [r["pid"] for r in rows(connection, "SELECT DISTINCT pid FROM claim WHERE host = :host", host=host)]

    def complete_unflipped(self, limit: int = 200) -> list[Complete]:
        """Versions whose last passage was finished by a worker that died before the flip."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT e.generation, e.document, e.target_version AS version, e.total FROM embedding e"
                " JOIN generation g ON g.id = e.generation AND g.status IN ('building', 'serving', 'draining')"
                " WHERE e.live_version IS DISTINCT FROM e.target_version AND e.target_version IS NOT NULL"
                " AND e.done = e.total ORDER BY e.generation, e.document LIMIT :limit",
                limit=limit,
            )
        return [Complete(**r) for r in found]

    def pending(self) -> dict[str, int]:
        """Work that is due, per queue, counted up to a thousand: enough to know how often to ring."""
        counts = "(SELECT count(*) FROM (SELECT FROM {0} WHERE state = 'pending' AND not_before <= clock_timestamp() LIMIT 1000) x)"
        with self._transaction() as connection:
            row = one(connection, "SELECT " + ", ".join(f"{counts.format(t)} AS {q}" for q, t in WORK.items()))
        assert row is not None
        return {q: int(row[q]) for q in WORK}

    def requeue_forgotten(self, limit: int = 2000, retry_seconds: float = 30.0) -> int:
        """Documents whose newest version some generation neither has nor is about to get, and that no job knows.

        Index-driven: what it reads grows with the work that waits, never with the corpus.
        """
        with self._transaction() as connection:
            found = [r["document"] for r in rows(connection, UNTARGETED, limit=limit, retry=retry_seconds)]
            changed = rows(connection, CHANGED, limit=limit)
            found += [r["document"] for r in changed if r["forgotten"]]
            if changed:
                _changes_seen(connection, max(r["at"] for r in changed))
            return _queue_again(connection, found) if found else 0

    def due_trash(self, limit: int = 200) -> list[Trash]:
        """Dead versions whose keys may be deleted now; those of a retired generation go with its collection."""
        with self._transaction() as connection:
            return [
                Trash(**r)
                for r in rows(
                    connection,
                    "SELECT t.id, t.generation, t.document, t.version, t.total, t.passes FROM vector_trash t"
                    " JOIN generation g ON g.id = t.generation AND g.status IN ('building', 'serving', 'draining')"
                    " WHERE t.due <= clock_timestamp() ORDER BY t.due LIMIT :limit",
                    limit=limit,
                )
            ]

    def trash_done(self, ids: Sequence[int], again_after: float) -> None:
        """The first pass over a key set is repeated after the longest claim, for what a late worker wrote.

        A row that is not due any more was dealt with by another sweep meanwhile: its second pass still comes.
        """
        due = "id = ANY(:ids) AND due <= clock_timestamp()"
        with self._transaction() as connection:
            run(connection, f"DELETE FROM vector_trash WHERE {due} AND passes >= 1", ids=list(ids))
            run(
                connection,
                "UPDATE vector_trash SET passes = passes + 1,"
                f" due = clock_timestamp() + make_interval(secs => :again) WHERE {due}",
                ids=list(ids),
                again=again_after,
            )


# Somebody prepared the document for another generation but could not cut it for this one, a repair was lost, or a
# version was parked and a newer one waits behind it.
UNTARGETED = """
SELECT DISTINCT w.document FROM (
    (SELECT e.generation, e.document FROM embedding e JOIN generation g ON g.id = e.generation
     WHERE e.target_version IS NULL AND g.status IN ('building', 'serving', 'draining')
     AND (e.requested_at IS NULL OR e.requested_at < clock_timestamp() - make_interval(secs => :retry))
     ORDER BY e.generation, e.document LIMIT :limit)
    UNION ALL
    (SELECT e.generation, e.document FROM embedding e JOIN generation g ON g.id = e.generation
     JOIN document d ON d.id = e.document
     WHERE e.parked > 0 AND e.target_version < d.version
     AND g.status IN ('building', 'serving', 'draining') ORDER BY e.generation, e.document LIMIT :limit)
) w
"""

# Each change is looked at once, half a minute later, by a mark that moves along ``updated_at``: a job that vanished
# without a trace is found, and a million fresh documents cost nothing.
CHANGED = """
SELECT d.id AS document, extract(epoch FROM d.updated_at) * 1000000 AS at,
       d.version > 0 AND d.deleted_version IS DISTINCT FROM d.version AND EXISTS (
           SELECT FROM generation g LEFT JOIN embedding e ON e.generation = g.id AND e.document = d.id
           WHERE g.status IN ('building', 'serving', 'draining') AND (e.document IS NULL
           OR e.target_version < d.version AND e.live_version = e.target_version)
           AND NOT EXISTS (SELECT FROM job j WHERE j.name = 'fill:' || g.id AND j.finished_at IS NULL)) AS forgotten
FROM document d
WHERE d.updated_at > coalesce((SELECT to_timestamp(cursor / 1000000.0) FROM job WHERE name = 'changes'), '-infinity')
  AND d.updated_at < clock_timestamp() - interval '30 seconds'
ORDER BY d.updated_at LIMIT :limit
"""


def _changes_seen(connection: Connection, at: Any) -> None:
    run(
        connection,
        "INSERT INTO job (name, cursor, finished_at) VALUES ('changes', :at, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor",
        at=int(at),
    )


def _queue_again(connection: Connection, documents: Sequence[int]) -> int:
    """In the backfill lane; a job that is there already is left alone."""
    queued = run(
        connection,
        "INSERT INTO prepare_job (document, tenant, lane) SELECT id, tenant, :lane FROM document"
        " WHERE id = ANY(:ids) AND deleted_version IS DISTINCT FROM version ORDER BY id ON CONFLICT DO NOTHING",
        ids=sorted(set(documents)),
        lane=int(Lane.BACKFILL),
    )
    count_event(connection, "forgotten_requeued", queued)
    return queued
