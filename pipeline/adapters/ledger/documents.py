"""Documents: deleting and reading; ``receiving`` takes them in. Every method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.changes import change_domains
from pipeline.adapters.ledger.connection import bump, one, rows, run
from pipeline.adapters.ledger.document_state import FROM_SQL, STATE_SQL
from pipeline.adapters.ledger.receiving import ReceivingLedger
from pipeline.documents import (
    Block,
    DocumentView,
    Event,
    Kind,
    State,
    VersionText,
)
from pipeline.errors import NotFound, PreconditionFailed


class DocumentLedger(ReceivingLedger):
    """The ``Documents`` port on PostgreSQL."""

    def delete(self, tenant: str, key: str, expected_version: int | None = None) -> int:
        """Marks the document deleted as a version of its own; returns that version. Raises NotFound."""
        with self._transaction() as connection:
            row = one(
                connection,
                "SELECT * FROM document WHERE tenant = :tenant AND key = :key FOR NO KEY UPDATE",
                tenant=tenant,
                key=key,
            )
            if row is None or row["version"] == 0 or row["deleted_version"] == row["version"]:
                raise NotFound(f"there is no document {key!r}", key=key)
            if expected_version is not None and expected_version != row["version"]:
                raise PreconditionFailed(f"the newest version is {row['version']}", version=row["version"])
            return retire_documents(connection, [row])[0]

    def view(self, tenant: str, key: str) -> DocumentView:
        """What GET answers. Raises NotFound for a key that was never used."""
        with self._transaction() as connection:
            found = _views(connection, "d.tenant = :tenant AND d.key = :key AND d.version > 0", tenant=tenant, key=key)
        if not found:
            raise NotFound(f"there is no document {key!r}", key=key)
        return found[0]

    def page(self, tenant: str, after: str, limit: int, filters: Mapping[str, str]) -> list[DocumentView]:
        """Documents by key after ``after``; filters: domain, kind, state, prefix."""
        where = ["d.tenant = :tenant", "d.key > :after", "d.version > 0"]
        where += [f"d.{name} = :{name}" for name in ("domain", "kind") if name in filters]
        if "state" in filters:
            where.append(f"{STATE_SQL} = :state")
        if "prefix" in filters:
            where.append("starts_with(d.key, :prefix)")
        with self._transaction() as connection:
            clause = " AND ".join(where) + " ORDER BY d.key LIMIT :limit"
            return _views(connection, clause, tenant=tenant, after=after, limit=limit, **filters)

    def texts(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], VersionText]:
        """The immutable texts of (document, version) pairs; missing pairs are left out."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT v.document, v.version, v.title, v.body, v.events FROM document_version v"
                " JOIN unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[])) AS w (document, version)"
                " USING (document, version)",
                documents=[d for d, _ in versions],
                versions=[v for _, v in versions],
            )
        return {(r["document"], r["version"]): version_text(r) for r in found}


def version_text(row: Mapping[str, Any]) -> VersionText:
    """A VersionText from a row with title, body and events."""
    events = row["events"]
    return VersionText(
        title=row["title"], body=row["body"], events=None if events is None else tuple(map(_event, events))
    )


def retire_documents(
    connection: Connection, found: Sequence[Mapping[str, Any]], *, consumed: bool = False
) -> list[int]:
    """Kills every version of locked document rows of one tenant: no lookup that starts after the commit finds them.

    Domains, then the counter, for all of them together: the order in which uploads lock them too.
    """
    versions = [_retire(connection, row, consumed) for row in found]
    change_domains(connection, found[0]["tenant"], [(row["domain"], row["id"]) for row in found])
    bump(connection, found[0]["tenant"], "l0")
    return versions


def _retire(connection: Connection, row: Mapping[str, Any], consumed: bool) -> int:
    version = int(row["version"]) + 1
    run(
        connection,
        "UPDATE document SET version = :version, deleted_version = :version,"
        " consumed_version = CASE WHEN :consumed THEN :version ELSE consumed_version END,"
        " updated_at = clock_timestamp() WHERE id = :id",
        version=version,
        consumed=consumed,
        id=row["id"],
    )
    # The flight, the live and the previous version all go; a worker in mid-flight is fenced by the missing rows.
    run(
        connection,
        "INSERT INTO vector_trash (generation, document, version, total, due)"
        " SELECT e.generation, e.document, x.version, x.total, clock_timestamp() FROM embedding e,"
        " LATERAL (VALUES (e.target_version, e.total), (e.live_version, e.live_total), (e.prev_version, e.prev_total))"
        " AS x (version, total) WHERE e.document = :id AND x.version IS NOT NULL AND x.total > 0"
        " GROUP BY 1, 2, 3, 4",
        id=row["id"],
    )
    run(connection, "DELETE FROM embedding WHERE document = :id", id=row["id"])
    for table in ("passage", "prepare_job", "describe_job"):
        run(connection, f"DELETE FROM {table} WHERE document = :id", id=row["id"])
    return version


def _views(connection: Connection, clause: str, **values: Any) -> list[DocumentView]:
    found = rows(
        connection,
        "SELECT d.key, d.id, d.kind, d.version, d.domain, d.title, d.keywords, d.summary, d.covers,"
        " d.when_to_retrieve, d.source, d.revision, d.metadata, d.writer, d.updated_at, e.live_version,"
        f" coalesce(e.live_total, 0) AS passages, g.fingerprint, {STATE_SQL} AS state,"
        " coalesce(j.last_error, (SELECT p.last_error FROM passage p WHERE p.generation = g.id"
        "  AND p.document = d.id AND p.last_error IS NOT NULL ORDER BY (p.state = 'parked') DESC, p.ordinal LIMIT 1))"
        f" AS error {FROM_SQL} WHERE {clause}",
        **values,
    )
    return [
        DocumentView(
            **{k: r[k] for k in DocumentView.__dataclass_fields__ if k not in {"state", "kind"}},
            state=State(r["state"]),
            kind=Kind(r["kind"]),
        )
        for r in found
    ]


def _event(raw: Mapping[str, Any]) -> Event:
    from datetime import datetime

    return Event(
        at=datetime.fromisoformat(raw["at"]),
        source=raw["source"],
        user_id=raw["user_id"],
        agent_id=raw["agent_id"],
        blocks=tuple(Block(**b) for b in raw["blocks"]),
    )
