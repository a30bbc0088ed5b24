"""What every tick puts in order about domains: missing rows, emptied rows, counts, stale summaries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, bump, one, rows, run, scalar
from pipeline.adapters.ledger.domains import ALIVE
from pipeline.adapters.ledger.llm_budget import add_to_window, refreshes_left

SETTLE_LOCK = 7_305_803

# Distinct (tenant, domain) by index probes: its cost follows the number of domains, not of documents.
_DOMAINS_OF = """
WITH RECURSIVE found (tenant, domain) AS (
    (SELECT tenant, {domain} FROM {table} ORDER BY tenant, {domain} LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.domain FROM found CROSS JOIN LATERAL (
        SELECT x.tenant, x.{domain} AS domain FROM {table} x WHERE (x.tenant, x.{domain}) > (found.tenant, found.domain)
        ORDER BY x.tenant, x.{domain} LIMIT 1) n
)
SELECT found.tenant, found.domain FROM found
WHERE NOT EXISTS (SELECT FROM knowledge_domain k WHERE k.tenant = found.tenant AND k.domain_id = found.domain)
"""


class DomainUpkeepLedger(Ledger):
    """The ``Housekeeping`` port on PostgreSQL."""

    def settle(self) -> None:
        """Makes rows for domains without one, removes emptied ones, brings counts and the map up to date."""
        with self._transaction() as connection:
            # One worker at a time: two would bump the counters of several tenants in crossing orders.
            if not scalar(connection, "SELECT pg_try_advisory_xact_lock(:lock)", lock=SETTLE_LOCK):
                return
            _add_missing(connection)
            # An upload that is not committed yet may have seen a row removed here; its change makes it again.
            changed = {d["tenant"] for d in rows(connection, _CHANGED) if _recount(connection, d)}
            for tenant in sorted(changed):
                bump(connection, tenant, "map")

    def mark_stale(self, fingerprint: str, extractive: str, per_hour: int) -> int:
        """Queues what an older prompt, model or writer wrote, newest use first, at the pace; returns how many.

        Without a model (``fingerprint`` is the extractive one) only what nobody wrote is stale, and what an older
        extractive rule wrote: a model's words are not replaced by lesser ones.
        """
        with self._transaction() as connection:
            run(connection, "DELETE FROM llm_memo WHERE at < clock_timestamp() - interval '30 days'")
            allowed = refreshes_left(connection, per_hour)
            if allowed == 0:
                return 0
            stale = _stale_fingerprints(connection, fingerprint, extractive)
            queued = _queue_documents(connection, stale, allowed)
            if queued < allowed:
                queued += _queue_domains(connection, fingerprint, extractive, allowed - queued)
            if queued:
                add_to_window(connection, calls=0, tokens=0, refreshes=queued)
            return queued

    def requeue_undescribed(self, minutes: int = 60, max_errors: int = 5) -> int:
        """Recently changed documents that no job will describe: a lost job, or one parked for lost workers only.

        A text cannot kill a worker that merely sends it; whoever restarts workers must not park covers.
        """
        with self._transaction() as connection:
            return run(
                connection,
                "INSERT INTO describe_job (document, version, tenant, lane) SELECT d.id, d.version, d.tenant, 1"
                " FROM document d WHERE d.updated_at > clock_timestamp() - make_interval(mins => :minutes)"
                " AND d.updated_at < clock_timestamp() - interval '5 seconds' AND d.version > 0"
                " AND d.deleted_version IS DISTINCT FROM d.version AND (d.described_version IS DISTINCT FROM d.version"
                " OR (d.writer = 'given' AND (d.given_covers = '{}' OR d.given_when_to_retrieve = '')))"
                " AND NOT EXISTS (SELECT FROM prepare_job p WHERE p.document = d.id AND p.state <> 'parked')"
                " AND NOT EXISTS (SELECT FROM describe_job j WHERE j.document = d.id AND j.version = d.version"
                " AND (j.state <> 'parked' OR j.errors >= :max_errors))"
                " ON CONFLICT (document) DO UPDATE SET version = excluded.version, state = 'pending', token = NULL,"
                " errors = 0, lapses = 0, lapsed_at = NULL, not_before = clock_timestamp()",
                minutes=minutes,
                max_errors=max_errors,
            )


# Only domains with changes can have become empty or count otherwise. A change committed out of the order of ids
# is seen for a minute after; longer than that no transaction of ours lives.
_CHANGED = """
SELECT k.id, k.tenant, k.domain_id, k.document_count, k.counted_change, l.id AS newest
FROM knowledge_domain k CROSS JOIN LATERAL (
    SELECT c.id, c.at FROM domain_change c WHERE c.tenant = k.tenant AND c.domain_id = k.domain_id
    ORDER BY c.id DESC LIMIT 1) l
WHERE l.at > clock_timestamp() - interval '1 minute' OR l.id > k.counted_change OR k.document_count = 0
ORDER BY k.id FOR UPDATE OF k SKIP LOCKED
"""


def _add_missing(connection: Connection) -> None:
    for table, column in (("document", "domain"), ("domain_change", "domain_id")):
        for each in rows(connection, _DOMAINS_OF.format(table=table, domain=column)):
            if _documents(connection, each["tenant"], each["domain"]) == 0:
                if table == "domain_change":
                    _forget_changes(connection, each["tenant"], each["domain"])
                continue
            run(
                connection,
                "WITH made AS (INSERT INTO knowledge_domain (tenant, domain_id, dirty_since, last_change_at) VALUES"
                " (:tenant, :domain, clock_timestamp(), clock_timestamp()) ON CONFLICT DO NOTHING RETURNING tenant)"
                " INSERT INTO domain_change (tenant, domain_id) SELECT tenant, :domain FROM made WHERE NOT EXISTS"
                " (SELECT FROM domain_change c WHERE c.tenant = :tenant AND c.domain_id = :domain)",
                tenant=each["tenant"],
                domain=each["domain"],
            )


def _forget_changes(connection: Connection, tenant: str, domain: str) -> None:
    """Changes of a domain that has neither documents nor a row, oldest read first: see :func:`_recount`."""
    ids = _changes(connection, tenant, domain)
    if _documents(connection, tenant, domain) == 0:
        run(connection, "DELETE FROM domain_change WHERE id = ANY(:ids)", ids=ids)


def _recount(connection: Connection, domain: dict[str, Any]) -> bool:
    """True when the map looks different now."""
    # The changes are read before the documents are counted: a document whose change is among them is counted.
    ids = _changes(connection, domain["tenant"], domain["domain_id"])
    count = _documents(connection, domain["tenant"], domain["domain_id"])
    if count == 0:
        run(connection, "DELETE FROM knowledge_domain WHERE id = :id", id=domain["id"])
        run(connection, "DELETE FROM domain_change WHERE id = ANY(:ids)", ids=ids)
    else:
        run(
            connection,
            "UPDATE knowledge_domain SET document_count = :count, counted_change = greatest(counted_change, :newest)"
            " WHERE id = :id",
            count=count,
            newest=max(ids, default=0),
            id=domain["id"],
        )
    return bool(count != domain["document_count"] or domain["newest"] > domain["counted_change"])


def _changes(connection: Connection, tenant: str, domain: str) -> list[int]:
    found = rows(
        connection,
        "SELECT id FROM domain_change WHERE tenant = :tenant AND domain_id = :domain",
        tenant=tenant,
        domain=domain,
    )
    return [r["id"] for r in found]


def _documents(connection: Connection, tenant: str, domain: str) -> int:
    row = one(
        connection,
        f"SELECT count(*) AS n FROM document d WHERE d.tenant = :tenant AND d.domain = :domain AND {ALIVE}",
        tenant=tenant,
        domain=domain,
    )
    return int(row["n"]) if row else 0


def _stale_fingerprints(connection: Connection, current: str, extractive: str) -> list[str | None]:
    """The fingerprints in use that are no longer current: a few index probes."""
    found = rows(
        connection,
        "WITH RECURSIVE used (f) AS ((SELECT summary_fingerprint FROM document d WHERE summary_fingerprint IS NOT NULL"
        " AND deleted_version IS DISTINCT FROM version ORDER BY 1 LIMIT 1) UNION ALL SELECT (SELECT"
        " summary_fingerprint FROM document WHERE summary_fingerprint > used.f AND deleted_version IS DISTINCT FROM"
        " version ORDER BY 1 LIMIT 1) FROM used WHERE used.f IS NOT NULL) SELECT f FROM used WHERE f IS NOT NULL",
    )
    return [None, *[r["f"] for r in found if _is_stale(r["f"], current, extractive)]]


def _is_stale(used: str, current: str, extractive: str) -> bool:
    if current == extractive:
        return used != current and used.startswith("extractive")
    return used != current


def _queue_documents(connection: Connection, stale: list[str | None], limit: int) -> int:
    queued = 0
    for used in stale:
        if queued < limit:
            queued += run(
                connection,
                "INSERT INTO describe_job (document, version, tenant, lane) SELECT d.id, d.version, d.tenant, 1"
                " FROM document d WHERE d.summary_fingerprint IS NOT DISTINCT FROM :used AND d.version > 0"
                " AND d.deleted_version IS DISTINCT FROM d.version"
                " AND NOT EXISTS (SELECT FROM describe_job j WHERE j.document = d.id)"
                " AND NOT EXISTS (SELECT FROM prepare_job p WHERE p.document = d.id)"
                " ORDER BY d.used_at DESC NULLS LAST, d.id DESC LIMIT :limit ON CONFLICT DO NOTHING",
                used=used,
                limit=limit - queued,
            )
    return queued


def _queue_domains(connection: Connection, current: str, extractive: str, limit: int) -> int:
    stale = (
        "k.summary_fingerprint IS DISTINCT FROM :current"
        if current != extractive
        else "(k.summary_fingerprint IS NULL OR (k.summary_fingerprint <> :current"
        " AND starts_with(k.summary_fingerprint, 'extractive')))"
    )
    return run(
        connection,
        "INSERT INTO domain_change (tenant, domain_id) SELECT k.tenant, k.domain_id FROM knowledge_domain k"
        f" WHERE {stale} AND NOT EXISTS (SELECT FROM domain_change c WHERE c.tenant = k.tenant"
        " AND c.domain_id = k.domain_id) ORDER BY k.used_at DESC NULLS LAST, k.id LIMIT :limit",
        current=current,
        limit=limit,
    )
