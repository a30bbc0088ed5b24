"""Long work under a row with a token and a cursor: fill, reconcile."""

from __future__ import annotations

import json
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, count_event, one, rows, run, scalar


class JobLedger(Ledger):
    """The ``Jobs`` port on PostgreSQL: a crash loses no tick."""

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

    def fill_page(self, generation: int, cursor: int, page: int, cap: int) -> tuple[int, int, int]:
        """Queues prepare jobs for the next documents the generation lacks; returns (new cursor, found, queued).

        Lacking: no target, or an older one than the newest version and nothing in flight. Stops short while ``cap``
        jobs or passages of the backfill lane are pending. At the end of the table the cursor starts again: the end
        is reached when an anti-join finds nothing, not when the cursor does.
        """
        with self._transaction() as connection:
            if scalar(connection, _BUSY, cap=cap) >= cap:
                return cursor, 0, 0
            ids = [r["id"] for r in rows(connection, LACKING, cursor=cursor, generation=generation, page=page)]
            if not ids:
                return 0, 0, 0
            queued = run(
                connection,
                "INSERT INTO prepare_job (document, tenant, lane) SELECT id, tenant, 1 FROM document"
                " WHERE id = ANY(:ids) ORDER BY id ON CONFLICT DO NOTHING",
                ids=ids,
            )
            count_event(connection, "fill_queued", queued)
            return max(ids), len(ids), queued


_BUSY = """
SELECT (SELECT count(*) FROM (SELECT FROM prepare_job WHERE state = 'pending' LIMIT :cap) x)
     + (SELECT count(*) FROM (SELECT FROM passage WHERE state = 'pending' AND lane = 1 LIMIT :cap) y)
"""

LACKING = """
SELECT d.id FROM document d WHERE d.id > :cursor AND d.version > 0 AND d.deleted_version IS DISTINCT FROM d.version
AND NOT EXISTS (SELECT FROM embedding e WHERE e.generation = :generation AND e.document = d.id
    AND (e.target_version = d.version OR (e.live_version IS DISTINCT FROM e.target_version AND e.parked = 0)))
ORDER BY d.id LIMIT :page
"""
