"""What the sweep asks PostgreSQL: lapsed claims, forgotten rows, trash, jobs, stale documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline.adapters.ledger.claims import lapse
from pipeline.adapters.ledger.connection import Ledger, count_event, one, rows, run, scalar
from pipeline.adapters.ledger.documents import queue_prepare
from pipeline.adapters.ledger.passages import note_parked
from pipeline.documents import Lane
from pipeline.work import Complete, Trash

# queue → its work table
WORK = {"gpu": "passage", "prepare": "prepare_job", "llm": "describe_job"}


class SweepLedger(Ledger):
    """The ``Sweeping`` port on PostgreSQL."""

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

    def requeue_forgotten(self, minutes: int = 60) -> int:
        """Recently changed documents whose newest version no job and no embedding row knows about."""
        with self._transaction() as connection:
            return queue_prepare(
                connection,
                "SELECT d.id, d.tenant FROM document d CROSS JOIN generation g"
                " LEFT JOIN embedding e ON e.generation = g.id AND e.document = d.id"
                " WHERE g.status IN ('building', 'serving', 'draining') AND d.version > 0"
                " AND d.updated_at > clock_timestamp() - make_interval(mins => :minutes)"
                " AND d.updated_at < clock_timestamp() - interval '5 seconds'"
                " AND d.deleted_version IS DISTINCT FROM d.version"
                " AND (e.document IS NULL OR (e.target_version < d.version"
                " AND (e.live_version = e.target_version OR e.parked > 0)))"
                " AND NOT EXISTS (SELECT FROM prepare_job j WHERE j.document = d.id) GROUP BY d.id, d.tenant",
                int(Lane.BACKFILL),
                minutes=minutes,
            )

    def due_trash(self, limit: int = 200) -> list[Trash]:
        """Dead versions whose keys may be deleted now, of generations whose collection still exists."""
        with self._transaction() as connection:
            return [
                Trash(**r)
                for r in rows(
                    connection,
                    "SELECT t.id, t.generation, t.document, t.version, t.total, t.passes FROM vector_trash t"
                    " JOIN generation g ON g.id = t.generation AND g.status <> 'dropped'"
                    " WHERE t.due <= clock_timestamp() ORDER BY t.due LIMIT :limit",
                    limit=limit,
                )
            ]

    def trash_done(self, ids: Sequence[int], again_after: float) -> None:
        """The first pass over a key set is repeated after the longest claim, for what a late worker wrote."""
        with self._transaction() as connection:
            run(connection, "DELETE FROM vector_trash WHERE id = ANY(:ids) AND passes >= 1", ids=list(ids))
            run(
                connection,
                "UPDATE vector_trash SET passes = passes + 1,"
                " due = clock_timestamp() + make_interval(secs => :again) WHERE id = ANY(:ids)",
                ids=list(ids),
                again=again_after,
            )


class JobLedger(Ledger):
    """The ``Jobs`` port: long work under a row with a token and a cursor, so that a crash loses no tick."""

    def take_job(self, prefix: str, seconds: float) -> dict[str, Any] | None:
        """One due, unheld job whose name starts with ``prefix``; its token fences whoever held it before."""
        with self._transaction() as connection:
            return one(
                connection,
                "UPDATE job SET token = nextval(pg_get_serial_sequence('claim', 'token')),"
                " deadline = clock_timestamp() + make_interval(secs => :seconds) WHERE name = ("
                " SELECT name FROM job WHERE starts_with(name, :prefix) AND finished_at IS NULL"
                " AND not_before <= clock_timestamp() AND (deadline IS NULL OR deadline < clock_timestamp())"
                " ORDER BY not_before, name LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING name, token, cursor, state",
                prefix=prefix,
                seconds=seconds,
            )

    def advance_job(
        self, name: str, token: int, cursor: int, state: dict[str, Any], delay: float = 0.0, *, finished: bool = False
    ) -> bool:
        """Commits progress and lets go of the job; False when somebody else holds it now."""
        with self._transaction() as connection:
            return (
                run(
                    connection,
                    "UPDATE job SET cursor = :cursor, state = CAST(:state AS jsonb), token = NULL, deadline = NULL,"
                    " not_before = clock_timestamp() + make_interval(secs => :delay),"
                    " finished_at = CASE WHEN :finished THEN clock_timestamp() END"
                    " WHERE name = :name AND token = :token",
                    name=name,
                    token=token,
                    cursor=cursor,
                    state=json.dumps(state),
                    delay=delay,
                    finished=finished,
                )
                == 1
            )

    def fill_page(self, generation: int, cursor: int, page: int, cap: int) -> tuple[int, int]:
        """Queues prepare jobs for the next documents without an embedding row; returns (new cursor, queued).

        Stops short while ``cap`` jobs or passages of the backfill lane are pending. At the end of the table the
        cursor starts again: the end is reached when an anti-join finds nothing, not when the cursor does.
        """
        with self._transaction() as connection:
            busy = scalar(
                connection,
                "SELECT (SELECT count(*) FROM (SELECT FROM prepare_job WHERE state = 'pending' LIMIT :cap) x)"
                " + (SELECT count(*) FROM (SELECT FROM passage WHERE state = 'pending' AND lane = 1 LIMIT :cap) y)",
                cap=cap,
            )
            if busy >= cap:
                return cursor, 0
            found = rows(
                connection,
                "SELECT d.id FROM document d WHERE d.id > :cursor AND d.version > 0"
                " AND d.deleted_version IS DISTINCT FROM d.version AND NOT EXISTS (SELECT FROM embedding e"
                " WHERE e.generation = :generation AND e.document = d.id AND e.target_version IS NOT NULL)"
                " ORDER BY d.id LIMIT :page",
                cursor=cursor,
                generation=generation,
                page=page,
            )
            ids = [r["id"] for r in found]
            if not ids:
                return 0, 0
            queued = run(
                connection,
                "INSERT INTO prepare_job (document, tenant, lane) SELECT id, tenant, 1 FROM document"
                " WHERE id = ANY(:ids) ON CONFLICT DO NOTHING",
                ids=ids,
            )
            count_event(connection, "fill_queued", queued)
            return max(ids), len(ids)
