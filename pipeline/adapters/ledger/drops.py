"""The way out of a generation: it stops being written to, is quiet for a while, and everything it held goes."""

from __future__ import annotations

from pipeline.adapters.ledger.connection import GENERATIONS_LOCK, Ledger, one, rows, run
from pipeline.adapters.ledger.generations import generation_of
from pipeline.errors import Conflict, NotFound
from pipeline.generation import Generation, Status


class DropLedger(Ledger):
    """The ``Retirement`` port on PostgreSQL."""

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
            return done == 1

    def drop(self, generation: int) -> Generation:
        """Retires a draining generation before its soak ends, or gives up one that builds. Raises NotFound, Conflict."""
        self.retire(generation, now=True)
        with self._transaction() as connection:
            row = one(connection, "SELECT * FROM generation WHERE id = :id", id=generation)
        if row is None:
            raise NotFound(f"there is no generation {generation}")
        if row["status"] == Status.SERVING:
            raise Conflict(f"generation {generation} serves; swap another one in first")
        return generation_of(row)

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
