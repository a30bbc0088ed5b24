"""Domains: claimed when due, stored with the changes they include, kept in step with the documents.

A change is a row of ``domain_change``. A summary deletes exactly the rows it read before it read the documents:
what was committed meanwhile, under a lower id or a higher one, stays and makes the domain due again.
"""

from __future__ import annotations

from sqlalchemy import Connection

from pipeline.adapters.ledger.claims import hold, holds
from pipeline.adapters.ledger.connection import Ledger, bump, count_event, one, rows, run
from pipeline.domains import ClaimedDomain, DomainPace, DomainRecord
from pipeline.sampling import DomainDocument

# What a domain holds: articles whose newest version is alive. Episodes are recalled, not planned for.
ALIVE = "d.kind = 'article' AND d.version > 0 AND d.deleted_version IS DISTINCT FROM d.version"

# The first and the last change by id, each one index probe; times are within a transaction's length of exact.
_FIRST_AND_LAST = """
CROSS JOIN LATERAL (SELECT c.at FROM domain_change c WHERE c.tenant = k.tenant AND c.domain_id = k.domain_id
                    ORDER BY c.id LIMIT 1) f
CROSS JOIN LATERAL (SELECT c.at, c.id FROM domain_change c WHERE c.tenant = k.tenant AND c.domain_id = k.domain_id
                    ORDER BY c.id DESC LIMIT 1) l
"""
# ``not_before`` is moved at the claim, so that whoever waited for the row's lock sees that it is taken: the claim
# row itself is not in that statement's snapshot.
_DUE = f"""
SELECT k.id FROM knowledge_domain k {_FIRST_AND_LAST}
WHERE k.not_before <= clock_timestamp()
  AND NOT EXISTS (SELECT FROM claim x WHERE x.token = k.token AND x.deadline > clock_timestamp())
  AND least(l.at + make_interval(secs => :quiet), f.at + make_interval(secs => :wait)) <= clock_timestamp()
  AND (cardinality(k.called_at) < :calls
       OR k.called_at[cardinality(k.called_at) - :calls + 1] + make_interval(secs => :wait) <= clock_timestamp())
ORDER BY f.at LIMIT 1 FOR UPDATE OF k SKIP LOCKED
"""


class DomainLedger(Ledger):
    """The ``Domains`` port on PostgreSQL."""

    def claim_domain(self, pace: DomainPace, seconds: float) -> ClaimedDomain | None:
        """The domain that has been due for longest, with the changes it has now; None when none is due."""
        with self._transaction() as connection:
            due = one(connection, _DUE, quiet=pace.quiet, wait=pace.wait, calls=pace.calls)
            if due is None:
                return None
            token = hold(connection, "llm", "describe_job", [], seconds, seconds)
            row = one(
                connection,
                "UPDATE knowledge_domain SET token = :token, not_before = clock_timestamp() + interval '5 seconds'"
                " WHERE id = :id RETURNING *",
                token=token,
                id=due["id"],
            )
            assert row is not None
            changes = rows(
                connection,
                "SELECT id FROM domain_change WHERE tenant = :tenant AND domain_id = :domain ORDER BY id",
                tenant=row["tenant"],
                domain=row["domain_id"],
            )
            return ClaimedDomain(
                id=row["id"],
                token=token,
                tenant=row["tenant"],
                domain_id=row["domain_id"],
                changes=tuple(c["id"] for c in changes),
                input_hash=row["input_hash"],
                described=row["updated_at"] is not None,
                errors=row["errors"],
            )

    def domain_documents(self, claimed: ClaimedDomain, limit: int) -> tuple[list[DomainDocument], int]:
        """At most ``limit`` documents, the same ones next time, and how many there are."""
        with self._transaction() as connection:
            total = _count(connection, claimed.tenant, claimed.domain_id)
            found = rows(
                connection,
                "SELECT d.id, d.key, d.title, d.summary, d.covers, d.when_to_retrieve FROM document d"
                f" WHERE d.tenant = :tenant AND d.domain = :domain AND {ALIVE}"
                + (" ORDER BY hashint8extended(d.id, 0) LIMIT :limit" if total > limit else ""),
                tenant=claimed.tenant,
                domain=claimed.domain_id,
                **({"limit": limit} if total > limit else {}),
            )
        documents = [DomainDocument(**{**r, "covers": tuple(r["covers"])}) for r in found]
        return documents, max(total, len(documents))

    def store_domain(self, claimed: ClaimedDomain, record: DomainRecord | None, pace: DomainPace) -> bool:
        """Commits a summary, or (``None``) that the changes altered nothing or emptied the domain; False when fenced."""
        with self._transaction() as connection:
            row = one(
                connection,
                "SELECT * FROM knowledge_domain WHERE id = :id AND token = :token FOR UPDATE",
                id=claimed.id,
                token=claimed.token,
            )
            if row is None or not holds(connection, claimed.token):
                run(connection, "DELETE FROM claim WHERE token = :token", token=claimed.token)
                return False
            if record is not None:
                _store(connection, claimed, record, pace)
            else:
                _keep_or_remove(connection, claimed)
            run(connection, "DELETE FROM domain_change WHERE id = ANY(:ids)", ids=list(claimed.changes))
            _let_go(connection, claimed, 0.0)
            bump(connection, claimed.tenant, "map")
            count_event(connection, "domains_unchanged" if record is None else "domains_summarised")
            return True

    def release_domain(self, claimed: ClaimedDomain, delay: float, error: str, *, counted: bool) -> None:
        """Gives the domain back with its changes, not to be tried for ``delay`` seconds."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE knowledge_domain SET errors = errors + :counted, last_error = :error"
                " WHERE id = :id AND token = :token",
                counted=int(counted),
                error=error[:2000],
                id=claimed.id,
                token=claimed.token,
            )
            _let_go(connection, claimed, delay)


def _store(connection: Connection, claimed: ClaimedDomain, record: DomainRecord, pace: DomainPace) -> None:
    run(
        connection,
        "UPDATE knowledge_domain SET description = :description, when_to_retrieve = :when_to,"
        " document_count = :count, input_hash = :input_hash, writer = :writer, prompt_version = :prompt,"
        " summary_fingerprint = :fingerprint, included_change = greatest(included_change, :newest), errors = 0,"
        " last_error = NULL, updated_at = clock_timestamp(), called_at = CASE WHEN :called THEN"
        " (called_at || clock_timestamp())[greatest(1, cardinality(called_at) + 2 - :calls):] ELSE called_at END"
        " WHERE id = :id",
        id=claimed.id,
        description=record.summary.description,
        when_to=record.summary.when_to_retrieve,
        count=record.document_count,
        input_hash=record.input_hash,
        writer=record.writer,
        prompt=record.fingerprint.partition("|")[0],
        fingerprint=record.fingerprint,
        newest=max(claimed.changes, default=0),
        called=record.called,
        calls=pace.calls,
    )


def _keep_or_remove(connection: Connection, claimed: ClaimedDomain) -> None:
    """An emptied domain goes. An upload that commits at this moment has a change of its own, which makes it again."""
    count = _count(connection, claimed.tenant, claimed.domain_id)
    if count == 0:
        run(connection, "DELETE FROM knowledge_domain WHERE id = :id", id=claimed.id)
    else:
        run(connection, "UPDATE knowledge_domain SET document_count = :n WHERE id = :id", n=count, id=claimed.id)


def _let_go(connection: Connection, claimed: ClaimedDomain, delay: float) -> None:
    run(
        connection,
        "UPDATE knowledge_domain k SET token = NULL, not_before = clock_timestamp() + make_interval(secs => :delay),"
        " (dirty_since, last_change_at) = (SELECT min(c.at), coalesce(max(c.at), k.last_change_at) FROM domain_change c"
        " WHERE c.tenant = k.tenant AND c.domain_id = k.domain_id) WHERE k.id = :id AND k.token = :token",
        id=claimed.id,
        token=claimed.token,
        delay=delay,
    )
    run(connection, "DELETE FROM claim WHERE token = :token", token=claimed.token)


def _count(connection: Connection, tenant: str, domain: str) -> int:
    row = one(
        connection,
        f"SELECT count(*) AS n FROM document d WHERE d.tenant = :tenant AND d.domain = :domain AND {ALIVE}",
        tenant=tenant,
        domain=domain,
    )
    return int(row["n"]) if row else 0
