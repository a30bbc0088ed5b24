"""Coverage, swap, rollback and retirement of generations: counted in PostgreSQL, under the exclusive lock."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import GENERATIONS_LOCK, Ledger, bump, one, rows, run, scalar
from pipeline.adapters.ledger.generations import add_job, generation_of
from pipeline.errors import Conflict, NotFound
from pipeline.generation import Coverage, Generation, Status

# Documents that the serving generation serves and the other one does not serve at least as new.
_BEHIND = """
FROM embedding s WHERE s.generation = :serving AND s.live_version IS NOT NULL AND NOT EXISTS (
    SELECT FROM embedding b WHERE b.generation = :other AND b.document = s.document
    AND b.live_version >= s.live_version)
"""


class SwapLedger(Ledger):
    """The ``Swaps`` port on PostgreSQL."""

    def coverage(self, generation: int) -> Coverage:
        """How much of the corpus the generation serves, in documents and tokens; parked ones apart."""
        with self._transaction() as connection:
            row = one(
                connection,
                "SELECT count(*) AS eligible, count(e.live_version) FILTER (WHERE e.live_version = d.version) AS done,"
                " count(*) FILTER (WHERE e.parked > 0) AS parked,"
                " coalesce(sum(e.live_tokens) FILTER (WHERE e.live_version IS NOT NULL), 0) AS tokens_done,"
                " coalesce(sum(CASE WHEN e.target_version IS DISTINCT FROM e.live_version THEN e.tokens"
                "  ELSE e.live_tokens END), 0) AS tokens_known,"
                " count(*) FILTER (WHERE e.target_version IS NULL) AS untargeted"
                " FROM document d LEFT JOIN embedding e ON e.generation = :generation AND e.document = d.id"
                " WHERE d.version > 0 AND d.deleted_version IS DISTINCT FROM d.version",
                generation=generation,
            )
            assert row is not None
            known = row["eligible"] - row["untargeted"]
            mean = scalar(
                connection,
                "SELECT coalesce(avg(tokens), 0) FROM embedding e JOIN generation g ON g.id = e.generation"
                " AND g.status = 'serving'",
            )
        per_document = float(row["tokens_known"]) / known if known else float(mean)
        return Coverage(
            documents_done=row["done"],
            documents_eligible=row["eligible"],
            parked=row["parked"],
            tokens_done=int(row["tokens_done"]),
            tokens_total=int(float(row["tokens_known"]) + per_document * row["untargeted"]),
        )

    def behind(self, serving: int, other: int, limit: int = 1000) -> int:
        """How many documents the other generation still has to catch up on, counted up to ``limit``."""
        with self._transaction() as connection:
            return _behind(connection, serving, other, limit)

    def close_in(self, generation: int) -> None:
        """The last laggards move to the live lane: under steady uploads the end must still come."""
        with self._transaction() as connection:
            run(connection, "UPDATE generation SET closing = true WHERE id = :id AND NOT closing", id=generation)
            run(
                connection,
                "UPDATE passage SET lane = 0 WHERE generation = :id AND state = 'pending' AND lane = 1",
                id=generation,
            )

    def hold(self, generation: int, reason: str | None) -> None:
        """Says why the swap does not happen, or clears it."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE generation SET held = :reason WHERE id = :id AND held IS DISTINCT FROM :reason",
                id=generation,
                reason=reason,
            )

    def note_check(self, generation: int, check: dict[str, Any]) -> None:
        """Stores the recall check on the generation."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE generation SET recall_check = CAST(:check AS jsonb) WHERE id = :id",
                id=generation,
                check=json.dumps(check),
            )

    def swap(self, other: int, *, accept_missing: bool = False) -> Generation:
        """Makes ``other`` serve and the serving one drain, if nothing that is served would vanish or grow older.

        One transaction under the exclusive lock, with writes to ``embedding`` held off while it counts: no flip
        can come between the count and the swap. Raises Conflict with the number of documents that hold it.
        """
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=GENERATIONS_LOCK)
            run(connection, "LOCK TABLE embedding IN SHARE MODE")
            target = one(connection, "SELECT * FROM generation WHERE id = :id FOR UPDATE", id=other)
            if target is None:
                raise NotFound(f"there is no generation {other}")
            if target["status"] not in {Status.BUILDING, Status.DRAINING}:
                raise Conflict(f"generation {other} is {target['status']}; only a building or draining one can serve")
            serving = one(connection, "SELECT * FROM generation WHERE status = 'serving' FOR UPDATE")
            if serving is not None:
                lag = _behind(connection, serving["id"], other, 1_000_000)
                if lag and not accept_missing:
                    raise Conflict(f"{lag} documents are served newer by generation {serving['id']}", behind=lag)
                _leave(connection, serving["id"])
            run(
                connection,
                "UPDATE generation SET status = 'serving', serving_at = clock_timestamp(), draining_at = NULL,"
                " held = NULL, closing = false WHERE id = :id",
                id=other,
            )
            run(connection, "DELETE FROM job WHERE name = :name", name=f"drop:{other}")
            for tenant in rows(connection, "SELECT DISTINCT tenant FROM document ORDER BY tenant"):
                bump(connection, tenant["tenant"], "l0")
            row = one(connection, "SELECT * FROM generation WHERE id = :id", id=other)
            assert row is not None
            return generation_of(row)

    def retire(self, generation: int, *, now: bool = False, soak: float = 0.0) -> bool:
        """Stops claims and writes of a draining (after its soak) or an aborted generation; False when not due."""
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=GENERATIONS_LOCK)
            done = run(
                connection,
                "UPDATE generation SET status = 'retiring', retired_at = clock_timestamp() WHERE id = :id AND"
                " ((status = 'draining' AND (:now OR draining_at < clock_timestamp() - make_interval(secs => :soak)))"
                " OR (status = 'building' AND :now))",
                id=generation,
                now=now,
                soak=soak,
            )
            if done:
                add_job(connection, f"drop:{generation}")
            return done == 1

    def retiring(self, quiet: float) -> list[Generation]:
        """Retired ones whose last claim and slowest lookup ended at least ``quiet`` seconds after they retired."""
        with self._transaction() as connection:
            return [
                generation_of(r)
                for r in rows(
                    connection,
                    "SELECT * FROM generation WHERE status = 'retiring'"
                    " AND retired_at < clock_timestamp() - make_interval(secs => :quiet) ORDER BY id",
                    quiet=quiet,
                )
            ]

    def dropped(self, generation: int) -> None:
        """Forgets a generation whose collection is gone: partition, passages, trash."""
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=GENERATIONS_LOCK)
            for table in ("passage", "vector_trash"):
                run(connection, f"DELETE FROM {table} WHERE generation = :id", id=generation)
            run(connection, f"DROP TABLE IF EXISTS embedding_g{int(generation)}")
            run(connection, "UPDATE generation SET status = 'dropped' WHERE id = :id", id=generation)
            run(connection, "DELETE FROM job WHERE split_part(name, ':', 2) = :id", id=str(generation))


def _behind(connection: Connection, serving: int, other: int, limit: int) -> int:
    return int(
        scalar(
            connection,
            f"SELECT count(*) FROM (SELECT s.document {_BEHIND} LIMIT :limit) x",
            serving=serving,
            other=other,
            limit=limit,
        )
    )


def _leave(connection: Connection, generation: int) -> None:
    """The one that served goes on receiving writes until its soak ends: swapping back loses nothing."""
    run(
        connection,
        "UPDATE generation SET status = 'draining', draining_at = clock_timestamp() WHERE id = :id",
        id=generation,
    )
