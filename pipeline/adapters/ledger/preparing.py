"""Prepare jobs: documents whose newest version still has to be cut into passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.claims import Claims, hold, holds_job, take
from pipeline.adapters.ledger.connection import GENERATIONS_LOCK, SUSPECTS_LOCK, one, rows, run, run_many, scalar
from pipeline.adapters.ledger.documents import version_text
from pipeline.adapters.ledger.flips import flip_row
from pipeline.adapters.ledger.generations import active_generations
from pipeline.documents import Lane
from pipeline.work import ClaimedDocument, Prepared

_PENDING = "w.state = 'pending' AND w.cohort IS NULL AND w.lane = :lane"

# One at a time in the whole fleet: several threads share a process, and a second suspect would die with the first.
_NEXT_SUSPECTS = """
SELECT cohort FROM prepare_job WHERE state = 'pending' AND cohort IS NOT NULL AND not_before <= clock_timestamp()
AND NOT EXISTS (SELECT FROM prepare_job h WHERE h.state = 'claimed' AND h.cohort IS NOT NULL)
ORDER BY lane, not_before, cohort LIMIT 1
"""


class PrepareLedger(Claims):
    """The ``Preparing`` port on PostgreSQL."""

    def claim_documents(
        self, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> list[ClaimedDocument]:
        """Up to ``limit`` jobs of a lane, fairly between tenants; the same token on all."""
        with self._transaction() as connection:
            token, ids = take(
                connection, "prepare", "prepare_job", _PENDING, limit=limit, seconds=seconds, longest=longest,
                after=after, lane=int(lane),
            )  # fmt: skip
            return _claimed(connection, token, ids)

    def claim_suspects(self, seconds: float, longest: float) -> list[ClaimedDocument]:
        """One cohort whose last holder was lost, alone: one of them may be what kills workers."""
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=SUSPECTS_LOCK)
            cohort = scalar(connection, _NEXT_SUSPECTS)
            if cohort is None:
                return []
            found = rows(
                connection,
                "SELECT id FROM prepare_job WHERE state = 'pending' AND cohort = :cohort ORDER BY id"
                " FOR UPDATE SKIP LOCKED",
                cohort=cohort,
            )
            ids = [r["id"] for r in found]
            token = hold(connection, "prepare", "prepare_job", ids, seconds, longest) if ids else 0
            return _claimed(connection, token, ids)

    def store_prepared(self, claimed: ClaimedDocument, prepared: Sequence[Prepared]) -> bool:
        """Writes the passage rows of one document and finishes its job.

        False when nothing was written: the claim is gone, the version moved, or the generations changed
        meanwhile. The job is then still (or again) pending, so that somebody does it with the new facts.
        """
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock_shared(:lock)", lock=GENERATIONS_LOCK)
            row = one(connection, "SELECT * FROM document WHERE id = :id FOR NO KEY UPDATE", id=claimed.document)
            if row is None or not holds_job(connection, "prepare_job", claimed.job, claimed.token):
                return False
            generations = {g.id: g for g in active_generations(connection)}
            if row["version"] != claimed.version or set(generations) != {p.generation for p in prepared}:
                run(connection, "UPDATE prepare_job SET state = 'pending', token = NULL WHERE id = :id", id=claimed.job)
                return False
            serving = next((g.id for g in generations.values() if g.status == "serving"), None)
            for each in prepared:
                own_lane = each.generation == serving or generations[each.generation].closing
                _target(connection, claimed, each, own_lane=own_lane)
            run(connection, "DELETE FROM prepare_job WHERE id = :id", id=claimed.job)
            run(
                connection,
                "INSERT INTO describe_job (document, version, tenant, lane) SELECT :document, :version, :tenant, :lane"
                " WHERE NOT EXISTS (SELECT FROM document WHERE id = :document AND described_version = :version)"
                " ON CONFLICT (document) DO UPDATE SET version = excluded.version, lane = excluded.lane,"
                " state = 'pending', token = NULL, errors = 0, lapses = 0, not_before = clock_timestamp()",
                document=claimed.document,
                version=claimed.version,
                tenant=claimed.tenant,
                lane=int(claimed.lane),
            )
            return True

    def fail_document(self, claimed: ClaimedDocument, error: str, delay: float, max_errors: int) -> None:
        """Counts one error of the document's own; parked at ``max_errors``."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE prepare_job SET errors = errors + 1, token = NULL, last_error = :error,"
                " state = CASE WHEN errors + 1 >= :max_errors THEN 'parked' ELSE 'pending' END,"
                " not_before = clock_timestamp() + make_interval(secs => :delay * power(2, errors))"
                " WHERE id = :id AND token = :token AND state = 'claimed'",
                id=claimed.job,
                token=claimed.token,
                error=error[:2000],
                delay=delay,
                max_errors=max_errors,
            )


def _claimed(connection: Connection, token: int, ids: Sequence[int]) -> list[ClaimedDocument]:
    if not ids:
        return []
    return [
        ClaimedDocument(
            job=r["id"],
            token=token,
            document=r["document"],
            tenant=r["tenant"],
            version=r["version"],
            lane=Lane(r["lane"]),
            deleted=r["deleted_version"] == r["version"],
            text=version_text(r) if r["text_hash"] else None,
        )
        for r in rows(
            connection,
            "SELECT j.id, j.document, j.tenant, j.lane, d.version, d.deleted_version, v.text_hash, v.title,"
            " v.body, v.events FROM prepare_job j JOIN document d ON d.id = j.document"
            " LEFT JOIN document_version v ON v.document = d.id AND v.version = d.version"
            " WHERE j.id = ANY(:ids) ORDER BY j.id",
            ids=list(ids),
        )
    ]


def _target(connection: Connection, claimed: ClaimedDocument, prepared: Prepared, *, own_lane: bool) -> None:
    """Points one generation's embedding row at the new version, unless a flight is under way."""
    passages = prepared.passages
    if passages is None:
        _leave_to_others(connection, prepared.generation, claimed.document)
        return
    run(
        connection,
        "INSERT INTO embedding (generation, document) VALUES (:generation, :document) ON CONFLICT DO NOTHING",
        generation=prepared.generation,
        document=claimed.document,
    )
    row = one(
        connection,
        "SELECT * FROM embedding WHERE generation = :generation AND document = :document FOR UPDATE",
        generation=prepared.generation,
        document=claimed.document,
    )
    assert row is not None
    if claimed.version == row["target_version"] and row["parked"] == 0:
        return
    in_flight = row["target_version"] not in (None, row["live_version"]) and row["parked"] == 0
    if in_flight and _started(connection, row):
        # One version in flight, one waiting: the flip queues the newest version again. Otherwise one upload
        # a second with three seconds of embedding would never complete a version.
        return
    # A flight that nobody started is replaced, and keeps its place in the queue.
    since = row["requested_at"] if in_flight else None
    _discard_flight(connection, row)
    lane = claimed.lane if own_lane else Lane.BACKFILL
    run(
        connection,
        "UPDATE embedding SET target_version = :version, total = :total, done = 0, parked = 0,"
        " tokens = :tokens, lane = :lane, requested_at = coalesce(CAST(:since AS timestamptz), clock_timestamp())"
        " WHERE generation = :generation AND document = :document",
        version=claimed.version,
        total=len(passages),
        tokens=sum(p.tokens for p in passages),
        lane=int(lane),
        since=since,
        generation=prepared.generation,
        document=claimed.document,
    )
    run_many(connection, _INSERT_PASSAGE, [_row(claimed, prepared.generation, lane, since, p) for p in passages])
    if not passages:
        flip_row(connection, prepared.generation, claimed.document, claimed.version)


_INSERT_PASSAGE = """
INSERT INTO passage (generation, document, version, ordinal, hash, text, start, "end", headings, tokens, lane, tenant,
                     not_before)
VALUES (:generation, :document, :version, :ordinal, :hash, :text, :start, :end, :headings, :tokens, :lane, :tenant,
        coalesce(CAST(:since AS timestamptz), clock_timestamp()))
ON CONFLICT DO NOTHING
"""


def _row(claimed: ClaimedDocument, generation: int, lane: Lane, since: Any, passage: Any) -> dict[str, Any]:
    return {
        "generation": generation,
        "document": claimed.document,
        "version": claimed.version,
        "ordinal": passage.ordinal,
        "hash": passage.hash,
        "text": passage.text,
        "start": passage.start,
        "end": passage.end,
        "headings": list(passage.headings),
        "tokens": passage.tokens,
        "lane": int(lane),
        "tenant": claimed.tenant,
        "since": since,
    }


def _leave_to_others(connection: Connection, generation: int, document: int) -> None:
    """This process cannot cut for the generation: the row says so, and the sweep offers the document again."""
    run(
        connection,
        "INSERT INTO embedding AS e (generation, document, requested_at) VALUES (:generation, :document,"
        " clock_timestamp()) ON CONFLICT (generation, document) DO UPDATE SET target_version = NULL,"
        " requested_at = clock_timestamp() WHERE e.target_version IS NULL OR e.target_version = e.live_version",
        generation=generation,
        document=document,
    )


def _started(connection: Connection, row: dict[str, Any]) -> bool:
    """Has a worker taken any passage of the flight?"""
    found = one(
        connection,
        "SELECT EXISTS (SELECT FROM passage WHERE generation = :generation AND document = :document"
        " AND version = :target_version AND state IN ('claimed', 'done')) AS started",
        **{k: row[k] for k in ("generation", "document", "target_version")},
    )
    return bool(found and found["started"])


def _discard_flight(connection: Connection, row: dict[str, Any]) -> None:
    """A version that will never serve leaves no work and no vectors."""
    if row["target_version"] is None or row["target_version"] == row["live_version"]:
        return
    run(
        connection,
        "DELETE FROM passage WHERE generation = :generation AND document = :document AND version = :target_version",
        **{k: row[k] for k in ("generation", "document", "target_version")},
    )
    run(
        connection,
        "INSERT INTO vector_trash (generation, document, version, total, due)"
        " SELECT :generation, :document, :target_version, :total, clock_timestamp() WHERE :total > 0",
        **{k: row[k] for k in ("generation", "document", "target_version", "total")},
    )
