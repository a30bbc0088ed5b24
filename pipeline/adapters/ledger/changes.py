"""What a change of a document sets in motion: a prepare job, domains that look different now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import run, run_many


def queue_prepare(connection: Connection, select: str, lane: int, **values: Any) -> int:
    """Queues a prepare job for each (id, tenant) that ``select`` yields; a job under way is fenced off and redone."""
    return run(
        connection,
        f"INSERT INTO prepare_job (document, tenant, lane) SELECT s.id, s.tenant, :lane FROM ({select}) s"
        " ON CONFLICT (document) DO UPDATE SET lane = least(prepare_job.lane, excluded.lane), state = 'pending',"
        " token = NULL, errors = 0, lapses = 0, cohort = NULL,"
        " not_before = least(prepare_job.not_before, excluded.not_before)",
        lane=lane,
        **values,
    )


def queue_prepare_of(connection: Connection, tenant: str, documents: Sequence[int], lane: int) -> None:
    """Queues a prepare job for each of these documents of one tenant."""
    select = "SELECT id, CAST(:tenant AS text) AS tenant FROM unnest(CAST(:documents AS bigint[])) AS id"
    queue_prepare(connection, select, lane, tenant=tenant, documents=list(documents))


def change_domains(connection: Connection, tenant: str, changes: Sequence[tuple[str, int | None]]) -> None:
    """Records that these domains look different now, for each (domain, document) once.

    The sweep turns due ones into summaries.
    """
    run_many(
        connection,
        "INSERT INTO domain_change (tenant, domain_id, document) VALUES (:tenant, :domain, :document)",
        [{"tenant": tenant, "domain": domain, "document": document} for domain, document in changes],
    )
    # Many uploads change one domain at once: whoever comes second must not wait for the first to commit,
    # so the row is only touched when it is not marked yet.
    run_many(
        connection,
        "INSERT INTO knowledge_domain (tenant, domain_id, dirty_since, last_change_at)"
        " VALUES (:tenant, :domain, clock_timestamp(), clock_timestamp())"
        " ON CONFLICT (tenant, domain_id) DO NOTHING",
        [{"tenant": tenant, "domain": domain} for domain in sorted({domain for domain, _ in changes})],
    )
