"""Describe jobs: documents whose newest version has no covers yet, or covers of an older prompt or model."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.changes import change_domains
from pipeline.adapters.ledger.claims import Claims, holds_job, take
from pipeline.adapters.ledger.connection import count_event, one, rows, run
from pipeline.adapters.ledger.documents import version_text
from pipeline.describe import ClaimedDescription, Written
from pipeline.documents import Kind, Lane

_PENDING = "w.state = 'pending' AND w.lane = :lane"


class DescribeLedger(Claims):
    """The ``Describing`` port on PostgreSQL."""

    def claim_descriptions(
        self, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> list[ClaimedDescription]:
        """Up to ``limit`` jobs of a lane, fairly between tenants; jobs of versions that moved on are forgotten."""
        with self._transaction() as connection:
            token, ids = take(
                connection, "llm", "describe_job", _PENDING, limit=limit, seconds=seconds, longest=longest,
                after=after, lane=int(lane),
            )  # fmt: skip
            if not ids:
                return []
            # The prepare job of the newer version makes a job of its own.
            run(
                connection,
                "DELETE FROM describe_job j USING document d WHERE j.id = ANY(:ids) AND d.id = j.document"
                " AND (d.version <> j.version OR d.deleted_version = d.version)",
                ids=ids,
            )
            found = rows(
                connection,
                "SELECT j.id AS job, j.document, j.tenant, j.version, d.kind, d.summary, d.keywords, d.given_covers,"
                " d.given_when_to_retrieve, v.title, v.body, v.events FROM describe_job j"
                " JOIN document d ON d.id = j.document"
                " JOIN document_version v ON v.document = j.document AND v.version = j.version"
                " WHERE j.id = ANY(:ids) ORDER BY j.id",
                ids=ids,
            )
            if not found:
                run(connection, "DELETE FROM claim WHERE token = :token", token=token)
            return [_claimed(token, r) for r in found]

    def store_description(self, claimed: ClaimedDescription, written: Written) -> bool:
        """Writes what was not given and finishes the job; False when the version moved or the claim is gone."""
        with self._transaction() as connection:
            if not self._mine(connection, claimed):
                return False
            _write(connection, claimed, written)
            run(connection, "DELETE FROM describe_job WHERE id = :id", id=claimed.job)
            _drop_empty_claim(connection, claimed.token)
            count_event(connection, f"described_{written.writer}")
            return True

    def fail_description(
        self,
        claimed: ClaimedDescription,
        error: str,
        delay: float,
        max_errors: int,
        fallback: Written,
        *,
        outage: bool = False,
    ) -> None:
        """Counts one error of the document's own; at ``max_errors`` parks the job and writes the fallback.

        An ``outage`` counts only when the endpoint answered others since this job failed last: then it is this
        document that the endpoint stumbles over.
        """
        with self._transaction() as connection:
            if not self._mine(connection, claimed):
                return
            row = one(
                connection,
                "UPDATE describe_job SET token = NULL, last_error = :error, lapsed_at = clock_timestamp(),"
                " errors = errors + counted.n, state = CASE WHEN errors + counted.n >= :max_errors THEN 'parked'"
                " ELSE 'pending' END, not_before = clock_timestamp()"
                " + make_interval(secs => least(3600, :delay * power(2, errors))) FROM"
                " (SELECT CASE WHEN NOT :outage OR EXISTS (SELECT FROM llm_endpoint e JOIN describe_job j"
                " ON j.id = :id WHERE e.succeeded_at > j.lapsed_at) THEN 1 ELSE 0 END AS n) counted"
                " WHERE id = :id RETURNING state",
                id=claimed.job,
                error=error[:2000],
                delay=delay,
                max_errors=max_errors,
                outage=outage,
            )
            if row is not None and row["state"] == "parked":
                _write(connection, claimed, fallback)
                count_event(connection, "describe_parked")
            _drop_empty_claim(connection, claimed.token)

    def release_descriptions(self, token: int, delay: float = 0.0) -> None:
        """Gives the jobs back uncounted, not to be tried for ``delay`` seconds."""
        self.release("describe_job", token, delay)

    @staticmethod
    def _mine(connection: Connection, claimed: ClaimedDescription) -> bool:
        # The document first, as prepare and receive lock it: the same order everywhere, no deadlock.
        document = one(connection, "SELECT version FROM document WHERE id = :id FOR NO KEY UPDATE", id=claimed.document)
        if document is None or not holds_job(connection, "describe_job", claimed.job, claimed.token):
            return False
        if document["version"] != claimed.version:
            run(connection, "DELETE FROM describe_job WHERE id = :id", id=claimed.job)
            _drop_empty_claim(connection, claimed.token)
            return False
        return True


def _write(connection: Connection, claimed: ClaimedDescription, written: Written) -> None:
    """Given values win over written ones as they stand now, not as they stood when the job was claimed."""
    before = one(
        connection,
        "SELECT domain, covers, when_to_retrieve, described_version FROM document WHERE id = :id",
        id=claimed.document,
    )
    after = one(
        connection,
        "UPDATE document SET covers = CASE WHEN cardinality(given_covers) > 0 THEN given_covers ELSE :covers END,"
        " when_to_retrieve = CASE WHEN given_when_to_retrieve <> '' THEN given_when_to_retrieve ELSE :when_to END,"
        " writer = :writer, described_version = :version, summary_fingerprint = :fingerprint"
        " WHERE id = :id RETURNING domain, covers, when_to_retrieve, described_version",
        id=claimed.document,
        covers=list(written.described.covers),
        when_to=written.described.when_to_retrieve,
        writer=written.writer,
        version=claimed.version,
        fingerprint=written.fingerprint,
    )
    # The same words again change no domain: nothing is summarised for them.
    if before is not None and before != after:
        # The map follows within a tick of the sweep; a bump per document would rebuild it for every one of a backfill.
        change_domains(connection, claimed.tenant, [(before["domain"], claimed.document)])


def _drop_empty_claim(connection: Connection, token: int) -> None:
    run(
        connection,
        "DELETE FROM claim WHERE token = :token AND NOT EXISTS"
        " (SELECT FROM describe_job WHERE token = :token AND state = 'claimed')",
        token=token,
    )


def _claimed(token: int, row: dict[str, Any]) -> ClaimedDescription:
    return ClaimedDescription(
        job=row["job"],
        token=token,
        document=row["document"],
        tenant=row["tenant"],
        version=row["version"],
        kind=Kind(row["kind"]),
        title=row["title"],
        summary=row["summary"],
        keywords=tuple(row["keywords"]),
        given_covers=tuple(row["given_covers"]),
        given_when_to_retrieve=row["given_when_to_retrieve"],
        text=version_text(row),
    )
