"""Parked work: what failed for good, with its reason, and the two ways out of it by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, rows, run
from pipeline.errors import NotFound


@dataclass(frozen=True, kw_only=True)
class Parked:
    """One parked document: what failed (``stage`` prepare, embed or describe), how often, and why."""

    tenant: str
    key: str
    version: int
    stage: str
    items: int
    errors: int
    lapses: int
    error: str
    since: datetime


_SELECT = """
SELECT d.tenant, d.key, d.id AS document, x.version, x.stage, x.items, x.errors, x.lapses, x.error, x.since FROM (
    SELECT document, version, 'embed' AS stage, count(*) AS items, max(errors) AS errors, max(lapses) AS lapses,
           max(last_error) AS error, min(not_before) AS since
    FROM passage WHERE state = 'parked' GROUP BY document, version
    UNION ALL
    SELECT j.document, d.version, 'prepare', 1, j.errors, j.lapses, coalesce(j.last_error, ''), j.not_before
    FROM prepare_job j JOIN document d ON d.id = j.document WHERE j.state = 'parked'
    UNION ALL
    SELECT document, version, 'describe', 1, errors, lapses, coalesce(last_error, ''), not_before
    FROM describe_job WHERE state = 'parked'
) x JOIN document d ON d.id = x.document WHERE d.tenant = :tenant AND d.key > :after
"""


class ParkingLedger(Ledger):
    """Listing, retrying and dropping parked work of one tenant."""

    def parked(self, tenant: str, after: str = "", limit: int = 100) -> list[Parked]:
        """Parked documents by key after ``after``."""
        with self._transaction() as connection:
            found = rows(connection, f"{_SELECT} ORDER BY d.key LIMIT :limit", tenant=tenant, after=after, limit=limit)
        return [Parked(**{k: v for k, v in r.items() if k != "document"}) for r in found]

    def retry(self, tenant: str, key: str) -> int:
        """Gives the parked items of a document a fresh start; returns how many. Raises NotFound."""
        with self._transaction() as connection:
            document = _locked(connection, tenant, key)
            fresh = (
                "state = 'pending', errors = 0, lapses = 0, lapsed_at = NULL, cohort = NULL, token = NULL,"
                " not_before = clock_timestamp()"
            )
            counts = [
                run(connection, f"UPDATE {table} SET {fresh} WHERE document = :d AND state = 'parked'", d=document)
                for table in ("passage", "prepare_job", "describe_job")
            ]
            run(connection, "UPDATE embedding SET parked = 0 WHERE document = :d AND parked > 0", d=document)
            return sum(counts)

    def drop(self, tenant: str, key: str) -> int:
        """Gives the parked version up: the one before goes on serving. Raises NotFound."""
        with self._transaction() as connection:
            document = _locked(connection, tenant, key)
            run(
                connection,
                "INSERT INTO vector_trash (generation, document, version, total, due) SELECT generation, document,"
                " target_version, total, clock_timestamp() FROM embedding WHERE document = :d AND parked > 0"
                " AND total > 0 AND target_version IS DISTINCT FROM live_version",
                d=document,
            )
            dropped = run(
                connection,
                "DELETE FROM passage p USING embedding e WHERE e.document = :d AND e.parked > 0"
                " AND p.generation = e.generation AND p.document = e.document AND p.version = e.target_version",
                d=document,
            )
            run(
                connection,
                "UPDATE embedding SET target_version = coalesce(live_version, target_version), parked = 0,"
                " total = coalesce(live_total, 0), done = coalesce(live_total, 0), tokens = live_tokens"
                " WHERE document = :d AND parked > 0",
                d=document,
            )
            for table in ("prepare_job", "describe_job"):
                dropped += run(connection, f"DELETE FROM {table} WHERE document = :d AND state = 'parked'", d=document)
            return dropped


def _locked(connection: Connection, tenant: str, key: str) -> int:
    found = rows(
        connection,
        "SELECT id FROM document WHERE tenant = :tenant AND key = :key FOR NO KEY UPDATE",
        tenant=tenant,
        key=key,
    )
    if not found:
        raise NotFound(f"there is no document {key!r}", key=key)
    return int(found[0]["id"])
