"""What reconcile asks PostgreSQL: which keys must exist, which are dead for ever, and how to repair."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipeline.adapters.ledger.changes import queue_prepare
from pipeline.adapters.ledger.connection import Ledger, count_event, rows, run
from pipeline.documents import Lane
from pipeline.work import Complete


class ReconcileLedger(Ledger):
    """The ``Reconciling`` port on PostgreSQL."""

    def due(self, every_seconds: float) -> None:
        """Starts a reconcile job for each active generation whose last one ended long enough ago."""
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO job (name, not_before) SELECT 'reconcile:' || id,"
                " clock_timestamp() + make_interval(secs => :every) FROM generation"
                " WHERE status IN ('building', 'serving', 'draining')"
                " ON CONFLICT (name) DO UPDATE SET cursor = 0, token = NULL, deadline = NULL, finished_at = NULL,"
                " not_before = clock_timestamp() WHERE job.finished_at < clock_timestamp() - make_interval(secs => :every)",
                every=every_seconds,
            )

    def served_page(self, generation: int, after: int, limit: int) -> list[Complete]:
        """Live versions of a generation by document id: each must have all its keys."""
        with self._transaction() as connection:
            return [
                Complete(**r)
                for r in rows(
                    connection,
                    "SELECT generation, document, live_version AS version, live_total AS total FROM embedding"
                    " WHERE generation = :generation AND document > :after AND live_version IS NOT NULL"
                    " AND live_total > 0 ORDER BY document LIMIT :limit",
                    generation=generation,
                    after=after,
                    limit=limit,
                )
            ]

    def repair(self, generation: int, documents: Sequence[int]) -> int:
        """Embeds versions again that lost vectors; they go on serving what is left meanwhile."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE embedding SET target_version = NULL WHERE generation = :generation"
                " AND document = ANY(:documents) AND target_version = live_version",
                generation=generation,
                documents=sorted(documents),
            )
            count_event(connection, "reconcile_missing", len(documents))
            return queue_prepare(
                connection,
                "SELECT id, tenant FROM document WHERE id = ANY(:documents)",
                int(Lane.LIVE),
                documents=sorted(documents),
            )

    def note(self, generation: int, found: dict[str, int]) -> None:
        """What a comparison for a swap found. One that found something is made again after the repair."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE generation SET compared = CAST(:found AS jsonb), held = :held WHERE id = :generation"
                " AND status = 'building'",
                generation=generation,
                found=json.dumps(found) if not found["missing"] else None,
                held=f"{found['missing']} documents lacked vectors in Milvus; they are embedded again"
                if found["missing"]
                else None,
            )

    def dead(self, generation: int, keys: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Those of (document, version, ordinal) that no present or future flip can make live: orphans.

        A key of the target, live or previous version, or of a version newer than all of them, is not dead.
        """
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT k.document, k.version, k.ordinal FROM unnest(CAST(:documents AS bigint[]),"
                " CAST(:versions AS int[]), CAST(:ordinals AS int[])) AS k (document, version, ordinal)"
                " LEFT JOIN document d ON d.id = k.document"
                " LEFT JOIN embedding e ON e.generation = :generation AND e.document = k.document"
                " WHERE d.id IS NULL OR (k.version < d.version AND ("
                "  e.document IS NULL AND d.deleted_version = d.version"
                "  OR e.document IS NOT NULL AND k.version < coalesce(e.live_version, e.target_version)"
                "  AND k.version IS DISTINCT FROM e.target_version AND k.version IS DISTINCT FROM e.prev_version))"
                " OR (k.version = e.live_version AND k.ordinal >= e.live_total)",
                generation=generation,
                documents=[k[0] for k in keys],
                versions=[k[1] for k in keys],
                ordinals=[k[2] for k in keys],
            )
            count_event(connection, "reconcile_orphans", len(found))
        return [(r["document"], r["version"], r["ordinal"]) for r in found]
