"""What a recall reads from PostgreSQL, and the leases under which episodes are handed to one caller at a time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, one, rows, run
from pipeline.adapters.ledger.documents import retire_documents
from pipeline.adapters.ledger.lookups import LookupLedger
from pipeline.documents import Kind
from pipeline.errors import Conflict
from pipeline.live import ServingRow
from pipeline.remembered import Leased, LiveEpisode, Narrowing, RawEvents, Said

# Texts that are compared with a phrase one by one, newest first: about 40 ms.
PHRASE_SCAN = 2000

# A lease holds the version it was given for: a newer text of the same key is another memory.
_LIVE = """
d.tenant = :tenant AND d.kind = :kind
 AND (d.deleted_version IS NULL OR d.deleted_version < d.version)
 AND (d.consumed_version IS NULL OR d.consumed_version < d.version)
 AND (CAST(:domain AS text) IS NULL OR d.domain = :domain)
 AND (CAST(:user_id AS text) IS NULL OR v.events @> jsonb_build_array(jsonb_build_object('user_id', CAST(:user_id AS text))))
 AND (CAST(:agent_id AS text) IS NULL OR v.events @> jsonb_build_array(jsonb_build_object('agent_id', CAST(:agent_id AS text))))
 AND NOT EXISTS (SELECT FROM recall_lease r WHERE r.document = d.id AND r.version >= e.live_version
  AND r.deadline > clock_timestamp() AND r.lease IS DISTINCT FROM CAST(:lease AS text))
"""
_JOINS = """
JOIN embedding e ON e.generation = :generation AND e.document = d.id
JOIN document_version v ON v.document = d.id AND v.version = e.live_version
"""


class RecallLedger(Ledger):
    """The ``Episodes`` port on PostgreSQL. Every method is one transaction."""

    def serving(self, tenant: str) -> ServingRow | None:
        """The serving generation; None before the first one."""
        return LookupLedger(self._engine).serving(tenant)

    def live(
        self, generation: int, documents: Sequence[int], within: Narrowing, grace: float, lease: str | None = None
    ) -> dict[int, LiveEpisode]:
        """Those of ``documents`` that may be recalled now, by id."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT d.id AS document, d.key, v.title, d.domain, d.source, e.live_version,"
                " CASE WHEN e.flipped_at > clock_timestamp() - make_interval(secs => :grace) THEN e.prev_version END"
                f" AS prev_version FROM document d {_JOINS} WHERE d.id = ANY(:documents) AND {_LIVE}",
                documents=list(documents),
                generation=generation,
                grace=grace,
                lease=lease,
                **_scope(within),
            )
        return {r["document"]: LiveEpisode(**r) for r in found}

    def saying(
        self, generation: int, tokens: Sequence[str], phrases: Sequence[str], within: Narrowing, most: int
    ) -> list[Said]:
        """Live versions that hold these strings: tokens by their index, phrases among the newest texts."""
        with self._transaction() as connection:
            found = [r for t in tokens for r in _holding(connection, generation, t, within, most)]
            found += [r for p in phrases for r in _comparing(connection, generation, p, within, most)]
        return [Said(**r) for r in found]

    def events(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], RawEvents]:
        """The stored events of those versions."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT v.document, v.version, v.events FROM document_version v"
                " JOIN unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[])) AS w (document, version)"
                " USING (document, version) WHERE v.events IS NOT NULL",
                documents=[d for d, _ in versions],
                versions=[v for _, v in versions],
            )
        return {(r["document"], r["version"]): r["events"] for r in found}

    def lease(
        self,
        generation: int,
        ranked: Sequence[int],
        most: int,
        within: Narrowing,
        session_id: str | None,
        seconds: float,
    ) -> Leased | None:
        """One statement: whoever locks a row first has it, the others pass over it to the next best."""
        lease = str(uuid.uuid4())
        with self._transaction() as connection:
            taken = rows(
                connection,
                "WITH ranked AS (SELECT * FROM unnest(CAST(:ranked AS bigint[])) WITH ORDINALITY AS w (document, rank)),"
                " free AS (SELECT d.id, e.live_version, w.rank FROM ranked w JOIN document d ON d.id = w.document"
                f" {_JOINS} WHERE d.version = e.live_version AND {_LIVE}"
                " ORDER BY w.rank LIMIT :most FOR NO KEY UPDATE OF d SKIP LOCKED),"
                " held AS (INSERT INTO recall_lease AS r (lease, document, version, tenant, session_id, deadline)"
                " SELECT CAST(:lease AS text), id, live_version, :tenant, CAST(:session_id AS text),"
                "  clock_timestamp() + make_interval(secs => :seconds) FROM free"
                # Between the snapshot and the lock another caller may have come and gone: then this row is theirs.
                " ON CONFLICT (document) DO UPDATE SET lease = excluded.lease, version = excluded.version,"
                " session_id = excluded.session_id, deadline = excluded.deadline, created_at = clock_timestamp()"
                " WHERE r.deadline <= clock_timestamp() OR r.version < excluded.version"
                " RETURNING document, version, deadline)"
                " SELECT h.document, h.version, h.deadline FROM held h JOIN free f ON f.id = h.document ORDER BY f.rank",
                ranked=list(ranked),
                most=most,
                generation=generation,
                lease=lease,
                session_id=session_id,
                seconds=seconds,
                **_scope(within),
            )
        if not taken:
            return None
        return Leased(
            lease=lease,
            deadline=min(r["deadline"] for r in taken),
            versions=tuple((r["document"], r["version"]) for r in taken),
        )

    def acknowledge(self, tenant: str, lease: str) -> tuple[str, ...]:
        """All of it is consumed, or none of it: then it goes back."""
        with self._transaction() as connection:
            held = _held(connection, tenant, lease)
            moved = [r["key"] for r in held if r["version"] != r["leased_version"]]
            good = bool(held) and not moved and all(r["holds"] for r in held)
            if good:
                retire_documents(connection, held, consumed=True)
            _settle(connection, tenant, lease)
        if not good:
            raise _conflict(held, moved)
        return tuple(r["key"] for r in held)

    def release(self, tenant: str, lease: str) -> tuple[str, ...]:
        """They may be recalled again from now on."""
        with self._transaction() as connection:
            held = _held(connection, tenant, lease)
            _settle(connection, tenant, lease)
        if not held or not all(r["holds"] for r in held):
            raise _conflict(held, [])
        return tuple(r["key"] for r in held)


def _scope(within: Narrowing) -> dict[str, Any]:
    return {
        "tenant": within.tenant,
        "kind": str(Kind.EPISODE),
        "domain": within.domain,
        "user_id": within.user_id,
        "agent_id": within.agent_id,
    }


def _holding(connection: Connection, generation: int, token: str, within: Narrowing, most: int) -> list[dict[str, Any]]:
    # Apart from the joins, so that no plan calls the function for every version instead of asking the index.
    return rows(
        connection,
        "WITH holding AS MATERIALIZED (SELECT document, version FROM document_version"
        " WHERE events IS NOT NULL AND episode_strings(events) @> ARRAY[CAST(:token AS text)])"
        " SELECT CAST(:token AS text) AS string, d.id AS document, v.version FROM holding h"
        f" JOIN document d ON d.id = h.document {_JOINS} AND v.version = h.version WHERE {_LIVE} LIMIT :most",
        token=token,
        generation=generation,
        most=most + 1,
        lease=None,
        **_scope(within),
    )


def _comparing(
    connection: Connection, generation: int, phrase: str, within: Narrowing, most: int
) -> list[dict[str, Any]]:
    return rows(
        connection,
        "SELECT CAST(:phrase AS text) AS string, c.document, c.version FROM ("
        f" SELECT d.id AS document, v.version, v.events FROM document d {_JOINS} WHERE v.events IS NOT NULL AND {_LIVE}"
        " ORDER BY d.updated_at DESC LIMIT :scanned) c"
        " WHERE EXISTS (SELECT FROM jsonb_path_query(c.events, '$[*].blocks[*].text') AS said"
        "  WHERE strpos(lower(normalize(said #>> '{}', NFKC)), CAST(:phrase AS text)) > 0) LIMIT :most",
        phrase=phrase,
        generation=generation,
        scanned=PHRASE_SCAN,
        most=most + 1,
        lease=None,
        **_scope(within),
    )


def _held(connection: Connection, tenant: str, lease: str) -> list[dict[str, Any]]:
    """The documents of a lease, locked in id order."""
    documents = rows(
        connection,
        "SELECT d.* FROM document d WHERE d.tenant = :tenant"
        " AND d.id IN (SELECT document FROM recall_lease WHERE lease = :lease AND tenant = :tenant)"
        " ORDER BY d.id FOR NO KEY UPDATE",
        tenant=tenant,
        lease=lease,
    )
    held = []
    for document in documents:
        # Read after the lock: the same lease may have been settled, or taken over, while this one waited.
        still = one(
            connection,
            "SELECT version AS leased_version, deadline > clock_timestamp() AS holds FROM recall_lease"
            " WHERE lease = :lease AND document = :document",
            lease=lease,
            document=document["id"],
        )
        held += [] if still is None else [{**document, **still}]
    return held


def _settle(connection: Connection, tenant: str, lease: str) -> None:
    run(connection, "DELETE FROM recall_lease WHERE lease = :lease AND tenant = :tenant", lease=lease, tenant=tenant)


def _conflict(held: Sequence[dict[str, Any]], moved: Sequence[str]) -> Conflict:
    if moved:
        return Conflict(
            f"{moved[0]!r} has a newer version than the one that was leased; it was given back", key=moved[0]
        )
    if held:
        return Conflict("the lease has lapsed; what it held was given back")
    return Conflict("the lease has lapsed, or was acknowledged or released before")
