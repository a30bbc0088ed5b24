"""Generations: who serves, who builds, what is complete. Adding and swapping take the exclusive lock."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import GENERATIONS_LOCK, Ledger, count_event, one, rows, run, scalar
from pipeline.fingerprint import Space, fingerprint
from pipeline.generation import Generation, Status
from pipeline.recall_check import Probe

_ACTIVE = "status IN ('building', 'serving', 'draining')"


class GenerationLedger(Ledger):
    """The ``Generations`` port on PostgreSQL."""

    def active(self) -> list[Generation]:
        """Those that documents are prepared for, oldest first."""
        with self._transaction() as connection:
            return active_generations(connection)

    def serving(self) -> Generation | None:
        """The one that answers lookups."""
        with self._transaction() as connection:
            row = one(connection, "SELECT * FROM generation WHERE status = 'serving'")
        return None if row is None else generation_of(row)

    def ensure(
        self, space: Space, rule: str, schema_version: int, prefix: str, *, force: bool = False
    ) -> Generation | None:
        """The generation of this fingerprint, made when it was never seen; None when it was seen and dropped.

        However many processes start at once, one row is made: the exclusive lock and a unique index see to it.
        ``force``: somebody asked for it, so one that was dropped is built again.
        """
        name = fingerprint(space, rule)
        with self._transaction() as connection:
            row = _alive(connection, name)
            if row is not None:
                return generation_of(row)
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=GENERATIONS_LOCK)
            row = _alive(connection, name)
            if row is not None:
                return generation_of(row)
            seen = scalar(connection, "SELECT count(*) FROM generation WHERE fingerprint = :name", name=name)
            if seen and not force:
                return None
            return _add(connection, name, space, rule, schema_version, prefix)

    def expected_rows(self, generation: int) -> int:
        """How many vectors its collection must hold at the least: those of the live versions."""
        with self._transaction() as connection:
            return int(
                scalar(
                    connection,
                    "SELECT coalesce(sum(live_total), 0) FROM embedding WHERE generation = :generation",
                    generation=generation,
                )
            )

    def emptied(self, generation: int) -> None:
        """Its vectors are gone: every document is embedded again; lookups are degraded until that is done."""
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=GENERATIONS_LOCK)
            count_event(connection, "collections_lost")
            for table in ("passage", "vector_trash", "embedding"):
                run(connection, f"DELETE FROM {table} WHERE generation = :generation", generation=generation)
            run(
                connection,
                "UPDATE generation SET emptied_at = clock_timestamp(), compared = NULL WHERE id = :generation",
                generation=generation,
            )
            add_job(connection, f"fill:{generation}")

    def rebuilt(self) -> None:
        """Ends the degraded time of emptied generations that are full again."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE generation g SET emptied_at = NULL WHERE g.emptied_at IS NOT NULL"
                " AND NOT EXISTS (SELECT FROM job j WHERE j.name = 'fill:' || g.id AND j.finished_at IS NULL)"
                " AND NOT EXISTS (SELECT FROM prepare_job p WHERE p.state <> 'parked')"
                " AND NOT EXISTS (SELECT FROM embedding e WHERE e.generation = g.id"
                " AND e.live_version IS DISTINCT FROM e.target_version AND e.parked = 0)",
            )

    def probes(self, generation: int, limit: int) -> list[Probe]:
        """Titles of served documents, spread over the corpus: the same sample for the same corpus.

        A document without a title is asked for by the first line that says something.
        """
        with self._transaction() as connection:
            return [
                Probe(tenant=r["tenant"], kind=r["kind"], document=r["id"], text=r["title"])
                for r in rows(
                    connection,
                    "SELECT d.tenant, d.kind, d.id, x.title FROM embedding e JOIN document d ON d.id = e.document"
                    " JOIN document_version v ON v.document = d.id AND v.version = e.live_version, LATERAL (SELECT"
                    " coalesce(nullif(v.title, ''), substring(coalesce(v.body, v.events #>> '{0,blocks,0,text}')"
                    " FROM '[[:alnum:]][^\n]{0,199}')) AS title) x"
                    " WHERE e.generation = :generation AND e.live_total > 0 AND x.title IS NOT NULL"
                    " ORDER BY md5(CAST(d.id AS text)) LIMIT :limit",
                    generation=generation,
                    limit=limit,
                )
            ]


def _alive(connection: Connection, name: str) -> dict[str, Any] | None:
    return one(connection, "SELECT * FROM generation WHERE fingerprint = :name AND status <> 'dropped'", name=name)


def _add(connection: Connection, name: str, space: Space, rule: str, schema_version: int, prefix: str) -> Generation:
    first = not scalar(connection, "SELECT EXISTS (SELECT FROM generation WHERE status = 'serving')")
    number = scalar(connection, "SELECT nextval(pg_get_serial_sequence('generation', 'id'))")
    row = one(
        connection,
        "INSERT INTO generation (id, fingerprint, space, rule, schema_version, collection, status, serving_at)"
        " OVERRIDING SYSTEM VALUE VALUES (:id, :name, CAST(:space AS jsonb), :rule, :schema_version, :collection,"
        " :status, CASE WHEN :first THEN clock_timestamp() END) RETURNING *",
        id=number,
        name=name,
        space=json.dumps(space.to_json()),
        rule=rule,
        schema_version=schema_version,
        collection=f"{prefix}_g{number}",
        status=Status.SERVING if first else Status.BUILDING,
        first=first,
    )
    assert row is not None
    run(connection, f"CREATE TABLE embedding_g{number} PARTITION OF embedding FOR VALUES IN ({number})")
    add_job(connection, f"fill:{number}")
    count_event(connection, "generations_started")
    # A second bump during a build supersedes it: nobody will ever need the first one's vectors.
    run(
        connection,
        "UPDATE generation SET status = 'retiring', held = 'superseded', retired_at = clock_timestamp()"
        " WHERE status = 'building' AND id <> :id",
        id=number,
    )
    return generation_of(row)


def add_job(connection: Connection, name: str) -> None:
    """Starts a long job, or starts it again from its beginning."""
    run(
        connection,
        "INSERT INTO job (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET cursor = 0, token = NULL,"
        " deadline = NULL, not_before = clock_timestamp(), state = '{}', finished_at = NULL, last_error = NULL",
        name=name,
    )


def active_generations(connection: Connection) -> list[Generation]:
    """Building, serving and draining ones, oldest first."""
    return [generation_of(r) for r in rows(connection, f"SELECT * FROM generation WHERE {_ACTIVE} ORDER BY id")]


def generation_of(row: dict[str, Any]) -> Generation:
    """A Generation from its row."""
    return Generation(
        id=row["id"],
        fingerprint=row["fingerprint"],
        space=Space(**row["space"]),
        rule=row["rule"],
        schema_version=row["schema_version"],
        collection=row["collection"],
        status=Status(row["status"]),
        held=row["held"],
        closing=row["closing"],
        calibration=row["calibration"],
        emptied_at=row["emptied_at"],
        recall_check=row["recall_check"],
        compared=row["compared"],
    )
