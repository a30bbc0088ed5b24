"""Coverage and swaps of generations: counted in PostgreSQL, under the exclusive lock."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import GENERATIONS_LOCK, Ledger, bump, one, rows, run, scalar
from pipeline.adapters.ledger.generations import generation_of
from pipeline.errors import Conflict, NotFound
from pipeline.generation import Coverage, Generation, Status

# Documents that the serving generation serves and the other one does not serve at least as new. Milvus answers
# searches a moment behind: what was served before and is new in the other generation must have had that moment.
_BEHIND = """
FROM embedding s WHERE s.generation = :serving AND s.live_version IS NOT NULL AND NOT EXISTS (
    SELECT FROM embedding b WHERE b.generation = :other AND b.document = s.document
    AND b.live_version >= s.live_version AND NOT (
        b.prev_version IS NULL AND b.flipped_at > clock_timestamp() - make_interval(secs => :settle)
        AND s.flipped_at < clock_timestamp() - make_interval(secs => :settle)))
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

    def behind(self, serving: int, other: int, limit: int = 1000, settle: float = 0.0) -> int:
        """How many documents the other generation still has to catch up on, counted up to ``limit``.

        ``settle``: seconds that a document new in the other one must have been there.
        """
        with self._transaction() as connection:
            return _behind(connection, serving, other, limit, settle)

    def served(self, generation: int, limit: int = 10_000) -> int:
        """How many documents a generation serves, counted up to ``limit``."""
        with self._transaction() as connection:
            return int(
                scalar(
                    connection,
                    "SELECT count(*) FROM (SELECT FROM embedding WHERE generation = :generation"
                    " AND live_version IS NOT NULL LIMIT :limit) x",
                    generation=generation,
                    limit=limit,
                )
            )

    def catch_up(self, generation: int, after: float = 60.0) -> bool:
        """Looks for forgotten documents from the beginning, when the last fill ended ``after`` seconds ago."""
        with self._transaction() as connection:
            return (
                run(
                    connection,
                    "UPDATE job SET cursor = 0, token = NULL, deadline = NULL, not_before = clock_timestamp(),"
                    " state = '{}', finished_at = NULL WHERE name = :name"
                    " AND finished_at < clock_timestamp() - make_interval(secs => :after)",
                    name=f"fill:{generation}",
                    after=after,
                )
                == 1
            )

    def want_comparison(self, generation: int) -> None:
        """Compares the generation with the vector store from the beginning, unless that is under way."""
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO job (name, state) VALUES (:name, CAST(:state AS jsonb)) ON CONFLICT (name) DO UPDATE SET cursor = 0,"
                " token = NULL, deadline = NULL, finished_at = NULL, not_before = clock_timestamp(), state = excluded.state"
                " WHERE job.finished_at IS NOT NULL OR NOT jsonb_exists(job.state, 'swap')",
                name=f"reconcile:{generation}",
                state=json.dumps({"swap": True}),
            )

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

    def latest_draining(self) -> Generation:
        """The one that served last. Raises Conflict when none is kept any more."""
        with self._transaction() as connection:
            row = one(
                connection, "SELECT * FROM generation WHERE status = 'draining' ORDER BY draining_at DESC LIMIT 1"
            )
        if row is None:
            raise Conflict("no generation that served before is kept any more")
        return generation_of(row)

    def swap(self, other: int, *, accept_missing: bool = False, settle: float = 0.0) -> Generation:
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
                lag = _behind(connection, serving["id"], other, 1_000_000, settle)
                if lag and not accept_missing:
                    raise Conflict(f"{lag} documents are served newer by generation {serving['id']}", behind=lag)
                _leave(connection, serving["id"])
            run(
                connection,
                "UPDATE generation SET status = 'serving', serving_at = clock_timestamp(), draining_at = NULL,"
                " held = NULL, closing = false WHERE id = :id",
                id=other,
            )
            for tenant in rows(connection, "SELECT DISTINCT tenant FROM document ORDER BY tenant"):
                bump(connection, tenant["tenant"], "l0")
            row = one(connection, "SELECT * FROM generation WHERE id = :id", id=other)
            assert row is not None
            return generation_of(row)


def _behind(connection: Connection, serving: int, other: int, limit: int, settle: float) -> int:
    return int(
        scalar(
            connection,
            f"SELECT count(*) FROM (SELECT s.document {_BEHIND} LIMIT :limit) x",
            serving=serving,
            other=other,
            limit=limit,
            settle=settle,
        )
    )


def _leave(connection: Connection, generation: int) -> None:
    """The one that served goes on receiving writes until its soak ends: swapping back loses nothing."""
    run(
        connection,
        "UPDATE generation SET status = 'draining', draining_at = clock_timestamp() WHERE id = :id",
        id=generation,
    )
