"""Claiming work rows: SKIP LOCKED, a token as fence, fair between tenants, the database's clock.

The same few statements serve passages, prepare jobs and describe jobs: their work columns are the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, count_event, one, rows, run, scalar

# Fair and cheap: a loose index scan finds the tenants that have work, the start rotates, LATERAL takes a few
# rows of each. A window function over all pending rows takes 60 times as long and refuses FOR UPDATE.
_FAIR = """
WITH RECURSIVE waiting (tenant) AS (
    (SELECT w.tenant FROM {table} w WHERE {pending} ORDER BY w.tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT w.tenant FROM {table} w WHERE {pending} AND w.tenant > waiting.tenant ORDER BY w.tenant LIMIT 1)
    FROM waiting WHERE waiting.tenant IS NOT NULL
), turn AS (
    SELECT tenant, count(*) OVER () AS tenants FROM waiting WHERE tenant IS NOT NULL
    ORDER BY (tenant <= :after), tenant LIMIT :limit
)
SELECT picked.id, turn.tenant FROM turn CROSS JOIN LATERAL (
    SELECT w.id FROM {table} w WHERE {pending} AND w.tenant = turn.tenant AND w.not_before <= clock_timestamp()
    ORDER BY w.not_before, w.id LIMIT greatest(1, :limit / turn.tenants) FOR UPDATE SKIP LOCKED
) picked LIMIT :limit
"""


class Claims(Ledger):
    """Holds on work rows: taken in one transaction, extended while progress moves, given back or fenced off."""

    def extend(self, token: int, seconds: float) -> bool:
        """Moves the deadline on, never past the longest claim; False when the claim is gone."""
        with self._transaction() as connection:
            return (
                run(
                    connection,
                    "UPDATE claim SET deadline = least(latest, clock_timestamp() + make_interval(secs => :seconds))"
                    " WHERE token = :token AND deadline > clock_timestamp()",
                    token=token,
                    seconds=seconds,
                )
                == 1
            )

    def release(self, table: str, token: int, delay: float = 0.0) -> None:
        """Gives the rows back uncounted: nobody's document was to blame."""
        with self._transaction() as connection:
            run(
                connection,
                f"UPDATE {table} SET state = 'pending', token = NULL,"
                " not_before = clock_timestamp() + make_interval(secs => :delay)"
                " WHERE token = :token AND state = 'claimed'",
                token=token,
                delay=delay,
            )
            run(connection, "DELETE FROM claim WHERE token = :token", token=token)

    def note_probe(self, generation: int) -> None:
        """Records that the encoder answered a probe: whoever kills workers now does it alone."""
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO embed_log (generation, lane, passages, copied, tokens, slots, seconds)"
                " VALUES (:generation, 0, 0, 0, 0, 0, 0)",
                generation=generation,
            )

    def finish_claim(self, token: int) -> None:
        """Forgets a claim whose rows were all dealt with. One that ran out too early stays, so that its rows lapse."""
        with self._transaction() as connection:
            run(
                connection,
                "DELETE FROM claim WHERE token = :token"
                " AND NOT EXISTS (SELECT FROM passage WHERE token = :token AND state = 'claimed')"
                " AND NOT EXISTS (SELECT FROM prepare_job WHERE token = :token AND state = 'claimed')",
                token=token,
            )


def take(
    connection: Connection,
    queue: str,
    table: str,
    pending: str,
    *,
    limit: int,
    seconds: float,
    longest: float,
    after: str = "",
    **values: Any,
) -> tuple[int, list[int]]:
    """Claims up to ``limit`` rows of ``table`` that match ``pending``; returns (token, ids), (0, []) when none."""
    found = rows(connection, _FAIR.format(table=table, pending=pending), limit=limit, after=after, **values)
    ids = sorted(r["id"] for r in found)
    return (hold(connection, queue, table, ids, seconds, longest), ids) if ids else (0, [])


def hold(connection: Connection, queue: str, table: str, ids: Sequence[int], seconds: float, longest: float) -> int:
    """Writes the claim and puts its token on rows that this transaction has locked."""
    token = scalar(
        connection,
        "INSERT INTO claim (queue, host, pid, deadline, latest) VALUES (:queue, :host, :pid,"
        " clock_timestamp() + make_interval(secs => :seconds), clock_timestamp() + make_interval(secs => :longest))"
        " RETURNING token",
        queue=queue,
        host=socket.gethostname(),
        pid=os.getpid(),
        seconds=seconds,
        longest=longest,
    )
    run(
        connection,
        f"UPDATE {table} SET state = 'claimed', token = :token WHERE id = ANY(:ids)",
        token=token,
        ids=list(ids),
    )
    return int(token)


def holds(connection: Connection, token: int) -> bool:
    """Is the claim still ours? Locks its row, so that it cannot lapse before this transaction ends."""
    found = one(
        connection,
        "SELECT token FROM claim WHERE token = :token AND deadline > clock_timestamp() FOR UPDATE",
        token=token,
    )
    if found is None:
        count_event(connection, "fenced_commits")
    return found is not None


def holds_job(connection: Connection, table: str, job: int, token: int) -> bool:
    """Is this job still ours under its claim? Locks the job's row, then the claim's."""
    mine = one(
        connection,
        f"SELECT id FROM {table} WHERE id = :id AND token = :token AND state = 'claimed' FOR UPDATE",
        id=job,
        token=token,
    )
    return mine is not None and holds(connection, token)


def lapse(connection: Connection, queue: str, table: str, max_lapses: int, dead_pids: Sequence[int]) -> list[int]:
    """Takes back the claims past their deadline, or of dead processes of this host; returns ids parked for it.

    A lapsed group goes back in halves, so that whatever kills workers is soon alone. Only an item that was claimed
    alone, as a suspect, counts a lapse: a worker holds nothing else beside a suspect, so nobody else is to blame.
    It is parked after ``max_lapses`` when other work succeeded in between.
    """
    lapsed = rows(
        connection,
        "DELETE FROM claim WHERE token IN (SELECT token FROM claim WHERE queue = :queue AND"
        " (deadline < clock_timestamp() OR (host = :host AND pid = ANY(:dead))) ORDER BY token FOR UPDATE SKIP LOCKED)"
        " RETURNING token, claimed_at",
        queue=queue,
        host=socket.gethostname(),
        dead=list(dead_pids),
    )
    parked: list[int] = []
    for claim in lapsed:
        count_event(connection, "lapsed_claims")
        held = rows(
            connection,
            f"SELECT id, lapses, lapsed_at, cohort FROM {table} WHERE token = :token AND state = 'claimed' ORDER BY id FOR UPDATE",
            token=claim["token"],
        )
        if len(held) == 1 and held[0]["cohort"] is not None:
            parked += _lapse_alone(connection, table, held[0], max_lapses)
            continue
        for half in filter(None, (held[::2], held[1::2])):
            run(
                connection,
                f"UPDATE {table} SET state = 'pending', token = NULL, cohort = :cohort WHERE id = ANY(:ids)",
                cohort=scalar(connection, "SELECT nextval(pg_get_serial_sequence('claim', 'token'))"),
                ids=[r["id"] for r in half],
            )
    return parked


def _lapse_alone(connection: Connection, table: str, row: dict[str, Any], max_lapses: int) -> list[int]:
    lapses = row["lapses"] + 1
    others = scalar(
        connection,
        "SELECT EXISTS (SELECT FROM embed_log WHERE at > CAST(:since AS timestamptz))",
        since=row["lapsed_at"],
    )
    # Without other successes in between, the machine may be what dies, not the document.
    park = lapses >= max_lapses and bool(others)
    run(
        connection,
        f"UPDATE {table} SET state = :state, token = NULL, lapses = :lapses,"
        " cohort = nextval(pg_get_serial_sequence('claim', 'token')),"
        " lapsed_at = coalesce(lapsed_at, clock_timestamp()),"
        " not_before = clock_timestamp() + make_interval(secs => :delay), last_error = :error WHERE id = :id",
        id=row["id"],
        state="parked" if park else "pending",
        lapses=lapses,
        delay=float(2 * lapses),
        error=f"the worker was lost {lapses} times while it held this item alone",
    )
    return [row["id"]] if park else []
