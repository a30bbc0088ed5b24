"""Documents: receiving, deleting, reading. Every method is one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.connection import Ledger, bump, one, rows, run
from pipeline.documents import (
    Block,
    DocumentView,
    Event,
    Hashes,
    Kind,
    Lane,
    Received,
    State,
    Upload,
    VersionText,
)
from pipeline.errors import Conflict, NotFound, PreconditionFailed

# The newest version's state in the serving generation, in SQL once: PUT, GET and lists must agree.
STATE_SQL = """
CASE WHEN d.consumed_version = d.version THEN 'consumed'
     WHEN d.deleted_version = d.version THEN 'deleted'
     WHEN EXISTS (SELECT FROM recall_lease r WHERE r.document = d.id AND r.deadline > clock_timestamp()) THEN 'leased'
     WHEN e.live_version = d.version THEN 'searchable'
     WHEN (e.target_version = d.version AND e.parked > 0) OR j.state = 'parked' THEN 'parked'
     ELSE 'pending' END
"""
FROM_SQL = """
FROM document d
LEFT JOIN generation g ON g.status = 'serving'
LEFT JOIN embedding e ON e.generation = g.id AND e.document = d.id
LEFT JOIN prepare_job j ON j.document = d.id
"""


class DocumentLedger(Ledger):
    """The ``Documents`` port on PostgreSQL."""

    def receive(
        self, tenant: str, upload: Upload, hashes: Hashes, lane: Lane, expected_version: int | None = None
    ) -> Received:
        """Stores the upload as a new version unless its text is that of the newest one.

        Raises PreconditionFailed (If-Match), Conflict (an older revision, another kind under the key).
        """
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO document (tenant, key, kind) VALUES (:tenant, :key, :kind)"
                " ON CONFLICT (tenant, key) DO NOTHING",
                tenant=tenant,
                key=upload.key,
                kind=upload.kind,
            )
            row = one(
                connection,
                "SELECT d.* FROM document d WHERE tenant = :tenant AND key = :key FOR NO KEY UPDATE",
                tenant=tenant,
                key=upload.key,
            )
            assert row is not None
            newest = _newest(connection, row["id"], row["version"])
            same_text = newest.get("text_hash") == hashes.text and newest["state"] not in {
                State.DELETED,
                State.CONSUMED,
                State.PARKED,
            }
            _check_preconditions(row, newest["state"], upload, expected_version, same_text)
            version = row["version"] if same_text else row["version"] + 1
            if not same_text:
                _add_version(connection, row["id"], version, upload, hashes.text, lane)
                _queue_prepare(connection, row["id"], tenant, lane)
            if not same_text or row["meta_hash"] != hashes.meta:
                _update_row(connection, row, upload, hashes, version)
            state = State(newest["state"]) if same_text else State.PENDING
            return Received(
                document=row["id"], key=upload.key, version=version, changed=not same_text, state=state, lane=lane
            )

    def unchanged(self, tenant: str, hashes: Mapping[str, Hashes]) -> dict[str, int]:
        """Those keys whose newest version says the same, with its version: one query, no locks."""
        with self._transaction() as connection:
            found = rows(
                connection,
                f"SELECT d.key, d.version, d.meta_hash, v.text_hash, {STATE_SQL} AS state {FROM_SQL}"
                " JOIN document_version v ON v.document = d.id AND v.version = d.version"
                " WHERE d.tenant = :tenant AND d.key = ANY(:keys)",
                tenant=tenant,
                keys=list(hashes),
            )
        return {
            r["key"]: r["version"]
            for r in found
            if r["state"] in {State.SEARCHABLE, State.PENDING}
            and Hashes(text=r["text_hash"], meta=r["meta_hash"]) == hashes[r["key"]]
        }

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
            return retire_document(connection, row)

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


def retire_document(connection: Connection, row: Mapping[str, Any], *, consumed: bool = False) -> int:
    """Kills every version of a locked document row: no lookup that starts after the commit finds it."""
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
    change_domains(connection, row["tenant"], {row["domain"]}, row["id"])
    bump(connection, row["tenant"], "l0")
    return version


def change_domains(connection: Connection, tenant: str, domains: set[str], document: int | None) -> None:
    """Records that these domains look different now; the sweep turns due ones into summaries."""
    for domain in sorted(domains):
        run(
            connection,
            "INSERT INTO domain_change (tenant, domain_id, document) VALUES (:tenant, :domain, :document)",
            tenant=tenant,
            domain=domain,
            document=document,
        )
        # Many uploads change one domain at once: whoever comes second must not wait for the first to commit,
        # so the row is only touched when it is not marked yet.
        run(
            connection,
            "INSERT INTO knowledge_domain (tenant, domain_id, dirty_since, last_change_at)"
            " VALUES (:tenant, :domain, clock_timestamp(), clock_timestamp())"
            " ON CONFLICT (tenant, domain_id) DO NOTHING",
            tenant=tenant,
            domain=domain,
        )


def _newest(connection: Connection, document: int, version: int) -> dict[str, Any]:
    if version == 0:
        return {"text_hash": None, "state": State.PENDING}
    found = one(
        connection,
        f"SELECT v.text_hash, {STATE_SQL} AS state {FROM_SQL}"
        " LEFT JOIN document_version v ON v.document = d.id AND v.version = d.version WHERE d.id = :id",
        id=document,
    )
    assert found is not None
    return found


def _check_preconditions(
    row: Mapping[str, Any], state: str, upload: Upload, expected: int | None, same_text: bool
) -> None:
    gone = row["version"] == 0 or state in {State.DELETED, State.CONSUMED}
    if expected is not None and expected != row["version"]:
        raise PreconditionFailed(f"the newest version is {row['version']}", version=row["version"])
    if row["kind"] != upload.kind and not gone:
        raise Conflict(f"the key {upload.key!r} holds an {row['kind']}", field="body" if upload.events else "events")
    if upload.revision is None or row["revision"] is None or same_text:
        return
    # An equal revision with another text is a late retry too: a source that changed something says so.
    if upload.revision <= row["revision"]:
        raise Conflict(
            f"revision {upload.revision} is not newer than the stored revision {row['revision']}", field="revision"
        )


def _add_version(
    connection: Connection, document: int, version: int, upload: Upload, text_hash: str, lane: Lane
) -> None:
    events = None if upload.events is None else json.dumps([_event_json(e) for e in upload.events], ensure_ascii=False)
    run(
        connection,
        "INSERT INTO document_version (document, version, text_hash, title, body, events, lane)"
        " VALUES (:document, :version, :text_hash, :title, :body, CAST(:events AS jsonb), :lane)",
        document=document,
        version=version,
        text_hash=text_hash,
        title=upload.title,
        body=upload.body,
        events=events,
        lane=int(lane),
    )


def _queue_prepare(connection: Connection, document: int, tenant: str, lane: Lane) -> None:
    queue_prepare(connection, "SELECT CAST(:document AS bigint) AS id, CAST(:tenant AS text) AS tenant", int(lane),
                  document=document, tenant=tenant)  # fmt: skip


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


def _update_row(connection: Connection, row: Mapping[str, Any], upload: Upload, hashes: Hashes, version: int) -> None:
    run(
        connection,
        "UPDATE document SET kind = :kind, version = :version, title = :title, domain = :domain,"
        " keywords = :keywords, summary = :summary, given_covers = :covers,"
        " covers = CASE WHEN cardinality(CAST(:covers AS text[])) > 0 THEN :covers ELSE covers END,"
        " given_when_to_retrieve = :when_to,"
        " when_to_retrieve = CASE WHEN :when_to <> '' THEN :when_to ELSE when_to_retrieve END,"
        " source = :source, revision = coalesce(:revision, revision), metadata = CAST(:metadata AS jsonb),"
        " meta_hash = :meta_hash, updated_at = clock_timestamp() WHERE id = :id",
        id=row["id"],
        kind=upload.kind,
        version=version,
        title=upload.title,
        domain=upload.domain,
        keywords=list(upload.keywords),
        summary=upload.summary,
        covers=list(upload.covers),
        when_to=upload.when_to_retrieve,
        source=upload.source,
        revision=upload.revision,
        metadata=json.dumps(upload.metadata, ensure_ascii=False),
        meta_hash=hashes.meta,
    )
    if row["meta_hash"] != hashes.meta:
        moved = {row["domain"], upload.domain} if row["version"] > 0 else {upload.domain}
        change_domains(connection, row["tenant"], moved, row["id"])
    if row["version"] == version and _withdrawn(row, upload):
        _describe_again(connection, row)
    if row["version"] == version and row["domain"] != upload.domain:
        _relabel(connection, row["id"], row["tenant"])
    bump(connection, row["tenant"], "l0")


def _withdrawn(row: Mapping[str, Any], upload: Upload) -> bool:
    """Did the source give covers or advice that it does not give any more?"""
    return bool(
        (row["given_covers"] and not upload.covers) or (row["given_when_to_retrieve"] and not upload.when_to_retrieve)
    )


def _describe_again(connection: Connection, row: Mapping[str, Any]) -> None:
    """What was given and is gone is written by the writer again."""
    run(connection, "UPDATE document SET described_version = NULL WHERE id = :id", id=row["id"])
    run(
        connection,
        "INSERT INTO describe_job (document, version, tenant, lane) VALUES (:id, :version, :tenant, 0)"
        " ON CONFLICT (document) DO UPDATE SET state = 'pending', token = NULL, errors = 0, lapses = 0,"
        " not_before = clock_timestamp()",
        id=row["id"],
        version=row["version"],
        tenant=row["tenant"],
    )


def _relabel(connection: Connection, document: int, tenant: str) -> None:
    """The vectors carry the domain as a field: they are written again under the new one, copied, not encoded."""
    run(
        connection,
        "UPDATE embedding SET target_version = NULL WHERE document = :document AND target_version = live_version",
        document=document,
    )
    _queue_prepare(connection, document, tenant, Lane.LIVE)


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


def _event_json(event: Event) -> dict[str, Any]:
    blocks = [{k: v for k, v in asdict(b).items() if v is not None} for b in event.blocks]
    return {
        "at": event.at.isoformat(),
        "source": event.source,
        "user_id": event.user_id,
        "agent_id": event.agent_id,
        "blocks": blocks,
    }


def _event(raw: Mapping[str, Any]) -> Event:
    from datetime import datetime

    return Event(
        at=datetime.fromisoformat(raw["at"]),
        source=raw["source"],
        user_id=raw["user_id"],
        agent_id=raw["agent_id"],
        blocks=tuple(Block(**b) for b in raw["blocks"]),
    )
