"""Passages: claimed for a generation, finished under the fence, failed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.claims import Claims, hold, holds, take
from pipeline.adapters.ledger.connection import count_event, rows, run, scalar
from pipeline.adapters.ledger.flips import flip_row, requeue
from pipeline.documents import Lane
from pipeline.work import ClaimedPassage, Complete, Group, GroupFigures

_PENDING = "w.state = 'pending' AND w.cohort IS NULL AND w.generation = :generation AND w.lane = :lane"


class PassageLedger(Claims):
    """The ``Passages`` port on PostgreSQL."""

    def claim_passages(
        self, generation: int, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> Group | None:
        """Up to ``limit`` passages of one generation and lane, fairly between tenants; None when there are none."""
        with self._transaction() as connection:
            token, ids = take(
                connection, "gpu", "passage", _PENDING, limit=limit, seconds=seconds, longest=longest, after=after,
                generation=generation, lane=int(lane),
            )  # fmt: skip
            return _group(connection, token, generation, ids) if ids else None

    def claim_suspects(self, generation: int, seconds: float, longest: float) -> Group | None:
        """One cohort whose last holder was lost, alone: it may be what kills workers."""
        with self._transaction() as connection:
            cohort = scalar(
                connection,
                "SELECT cohort FROM passage WHERE state = 'pending' AND cohort IS NOT NULL"
                " AND generation = :generation AND not_before <= clock_timestamp()"
                " ORDER BY lane, not_before, cohort LIMIT 1 FOR UPDATE SKIP LOCKED",
                generation=generation,
            )
            if cohort is None:
                return None
            found = rows(
                connection,
                "SELECT id FROM passage WHERE state = 'pending' AND generation = :generation AND cohort = :cohort"
                " ORDER BY id FOR UPDATE SKIP LOCKED",
                generation=generation,
                cohort=cohort,
            )
            ids = [r["id"] for r in found]
            return _group(connection, hold(connection, "gpu", "passage", ids, seconds, longest), generation, ids)

    def suspects_waiting(self, generations: Sequence[int]) -> bool:
        """Is a cohort due that a lost worker left behind?"""
        with self._transaction() as connection:
            return bool(
                scalar(
                    connection,
                    "SELECT EXISTS (SELECT FROM passage WHERE state = 'pending' AND cohort IS NOT NULL"
                    " AND generation = ANY(:generations) AND not_before <= clock_timestamp())",
                    generations=list(generations),
                )
            )

    def live_waiting(self, generations: Sequence[int]) -> bool:
        """Is somebody waiting? Asked before every batch of a backfill."""
        with self._transaction() as connection:
            return bool(
                scalar(
                    connection,
                    "SELECT EXISTS (SELECT FROM passage WHERE state = 'pending' AND cohort IS NULL AND lane = 0"
                    " AND generation = ANY(:generations) AND not_before <= clock_timestamp())",
                    generations=list(generations),
                )
            )

    def finish(self, group: Group, passages: Sequence[ClaimedPassage], figures: GroupFigures) -> list[Complete]:
        """Marks written passages done under the fence; returns the versions that are complete now.

        Rows that a newer version, a delete or a lapsed claim took away are left out and counted as fenced.
        """
        with self._transaction() as connection:
            if not holds(connection, group.token):
                return []
            run(
                connection,
                "SELECT FROM embedding WHERE generation = :generation AND document = ANY(:documents)"
                " ORDER BY document FOR UPDATE",
                generation=group.generation,
                documents=sorted({p.document for p in passages}),
            )
            done = rows(
                connection,
                "UPDATE passage SET state = 'done', token = NULL WHERE id = ANY(:ids) AND token = :token"
                " AND state = 'claimed' RETURNING document, version",
                ids=sorted(p.id for p in passages),
                token=group.token,
            )
            count_event(connection, "fenced_passages", len(passages) - len(done))
            _log(connection, group, figures)
            return [
                Complete(
                    generation=group.generation, document=r["document"], version=r["target_version"], total=r["total"]
                )
                for r in rows(
                    connection,
                    "UPDATE embedding e SET done = e.done + n.k FROM (SELECT d.document, d.version,"
                    " count(*) AS k FROM unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[])) AS d"
                    " (document, version) GROUP BY 1, 2) n WHERE e.generation = :generation"
                    " AND e.document = n.document AND e.target_version = n.version"
                    " RETURNING e.document, e.target_version, e.total, e.done",
                    generation=group.generation,
                    documents=[r["document"] for r in done],
                    versions=[r["version"] for r in done],
                )
                if r["done"] == r["total"]
            ]

    def flip(self, complete: Complete, missing: Sequence[int], grace: float) -> bool:
        """Makes a version live whose keys were all read back; ``missing`` ordinals go back to pending instead."""
        with self._transaction() as connection:
            run(connection, "SELECT FROM document WHERE id = :id FOR NO KEY UPDATE", id=complete.document)
            if missing:
                _back_to_pending(connection, complete, missing)
                return False
            return flip_row(connection, complete.generation, complete.document, complete.version, grace)

    def fail_passage(self, group: Group, passage: ClaimedPassage, error: str, delay: float, max_errors: int) -> bool:
        """Counts one error of the passage's own, with growing delay; True when that parked it."""
        with self._transaction() as connection:
            run(connection, "SELECT FROM document WHERE id = :id FOR NO KEY UPDATE", id=passage.document)
            failed = rows(
                connection,
                "UPDATE passage SET errors = errors + 1, token = NULL, last_error = :error,"
                " state = CASE WHEN errors + 1 >= :max_errors THEN 'parked' ELSE 'pending' END,"
                " not_before = clock_timestamp() + make_interval(secs => :delay * power(2, errors))"
                " WHERE id = :id AND token = :token AND state = 'claimed' RETURNING id, state",
                id=passage.id,
                token=group.token,
                error=error[:2000],
                delay=delay,
                max_errors=max_errors,
            )
            parked = bool(failed) and failed[0]["state"] == "parked"
            if parked:
                note_parked(connection, [passage.id])
            return parked


def note_parked(connection: Connection, ids: Sequence[int]) -> None:
    """Counts parked passages on their embedding rows; a newer version that waited gets its turn."""
    for r in rows(
        connection,
        "UPDATE embedding e SET parked = e.parked + p.k FROM (SELECT generation, document, version, count(*) AS k"
        " FROM passage WHERE id = ANY(:ids) GROUP BY 1, 2, 3) p WHERE e.generation = p.generation"
        " AND e.document = p.document AND e.target_version = p.version RETURNING e.document, e.target_version,"
        " (SELECT d.version FROM document d WHERE d.id = e.document) AS newest",
        ids=list(ids),
    ):
        count_event(connection, "parked_versions")
        if r["newest"] > r["target_version"]:
            requeue(connection, r["document"])


def _group(connection: Connection, token: int, generation: int, ids: Sequence[int]) -> Group:
    found = rows(
        connection,
        'SELECT p.id, p.generation, p.document, p.version, p.ordinal, p.hash, p.text, p.start, p."end", p.headings,'
        " p.tokens, p.lane, p.tenant, d.kind, d.domain, e.live_version, e.live_total FROM passage p"
        " JOIN document d ON d.id = p.document JOIN embedding e ON e.generation = p.generation"
        " AND e.document = p.document WHERE p.id = ANY(:ids) ORDER BY p.id",
        ids=list(ids),
    )
    passages = tuple(ClaimedPassage(**{**r, "headings": tuple(r["headings"]), "lane": Lane(r["lane"])}) for r in found)
    return Group(
        token=token, generation=generation, passages=passages, after=max((p.tenant for p in passages), default="")
    )


def _back_to_pending(connection: Connection, complete: Complete, missing: Sequence[int]) -> None:
    count_event(connection, "read_back_missing", len(missing))
    values: dict[str, Any] = {
        "generation": complete.generation,
        "document": complete.document,
        "version": complete.version,
    }
    back = run(
        connection,
        "UPDATE passage SET state = 'pending' WHERE generation = :generation AND document = :document"
        " AND version = :version AND ordinal = ANY(:ordinals) AND state = 'done'",
        ordinals=list(missing),
        **values,
    )
    run(
        connection,
        "UPDATE embedding SET done = done - :back WHERE generation = :generation AND document = :document"
        " AND target_version = :version",
        back=back,
        **values,
    )


def _log(connection: Connection, group: Group, figures: GroupFigures) -> None:
    run(
        connection,
        "INSERT INTO embed_log (generation, lane, passages, copied, tokens, slots, seconds)"
        " VALUES (:generation, :lane, :passages, :copied, :tokens, :slots, :seconds)",
        generation=group.generation,
        lane=int(group.passages[0].lane),
        passages=figures.passages,
        copied=figures.copied,
        tokens=figures.tokens,
        slots=figures.slots,
        seconds=figures.seconds,
    )
