"""Receiving: an upload, or a batch of new ones, becomes versions and prepare jobs in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection

from pipeline.adapters.ledger.changes import change_domains, queue_prepare_of
from pipeline.adapters.ledger.connection import Ledger, bump, one, rows, run, run_many
from pipeline.adapters.ledger.document_state import FROM_SQL, STATE_SQL
from pipeline.documents import Event, Hashes, Lane, Received, State, Upload
from pipeline.errors import Conflict, PreconditionFailed

_ADD_VERSION = (
    "INSERT INTO document_version (document, version, text_hash, title, body, events, lane)"
    " VALUES (:document, :version, :text_hash, :title, :body, CAST(:events AS jsonb), :lane)"
)
_SET_ROW = (
    "UPDATE document SET kind = :kind, version = :version, title = :title, domain = :domain,"
    " keywords = :keywords, summary = :summary, given_covers = :covers,"
    " covers = CASE WHEN cardinality(CAST(:covers AS text[])) > 0 THEN :covers ELSE covers END,"
    " given_when_to_retrieve = :when_to,"
    " when_to_retrieve = CASE WHEN :when_to <> '' THEN :when_to ELSE when_to_retrieve END,"
    " source = :source, revision = coalesce(:revision, revision), metadata = CAST(:metadata AS jsonb),"
    " meta_hash = :meta_hash, updated_at = clock_timestamp() WHERE id = :id"
)


class ReceivingLedger(Ledger):
    """The half of the ``Documents`` port that takes uploads in."""

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
                run(connection, _ADD_VERSION, **_version_values(row["id"], version, upload, hashes, lane))
                queue_prepare_of(connection, tenant, [row["id"]], int(lane))
            if not same_text or row["meta_hash"] != hashes.meta:
                _update_row(connection, row, upload, hashes, version)
            state = State(newest["state"]) if same_text else State.PENDING
            return Received(
                document=row["id"], key=upload.key, version=version, changed=not same_text, state=state, lane=lane
            )

    def receive_new(
        self, tenant: str, uploads: Sequence[Upload], hashes: Mapping[str, Hashes], lane: Lane
    ) -> dict[str, Received]:
        """Stores, in one transaction, those of the uploads whose keys were never used; returns them by key.

        The keys are distinct. Keys that are in use are left to :meth:`receive`, which compares and checks.
        """
        # In the order of the keys: two batches with the same ones wait for each other and do not lock up.
        ordered = sorted(uploads, key=lambda u: u.key)
        with self._transaction() as connection:
            made = rows(
                connection,
                "INSERT INTO document (tenant, key, kind) SELECT :tenant, u.key, u.kind"
                " FROM unnest(CAST(:keys AS text[]), CAST(:kinds AS text[])) WITH ORDINALITY AS u (key, kind, n)"
                " ORDER BY u.n ON CONFLICT (tenant, key) DO NOTHING RETURNING id, key",
                tenant=tenant,
                keys=[u.key for u in ordered],
                kinds=[u.kind for u in ordered],
            )
            ids = {r["key"]: r["id"] for r in made}
            new = [u for u in ordered if u.key in ids]
            run_many(connection, _ADD_VERSION, [_version_values(ids[u.key], 1, u, hashes[u.key], lane) for u in new])
            queue_prepare_of(connection, tenant, [ids[u.key] for u in new], int(lane))
            run_many(connection, _SET_ROW, [_row_values(ids[u.key], 1, u, hashes[u.key]) for u in new])
            change_domains(connection, tenant, [(u.domain, ids[u.key]) for u in new])
            if new:
                bump(connection, tenant, "l0")
        return {
            key: Received(document=made_id, key=key, version=1, changed=True, state=State.PENDING, lane=lane)
            for key, made_id in ids.items()
        }

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


def _version_values(document: int, version: int, upload: Upload, hashes: Hashes, lane: Lane) -> dict[str, Any]:
    events = None if upload.events is None else json.dumps([event_json(e) for e in upload.events], ensure_ascii=False)
    return {
        "document": document,
        "version": version,
        "text_hash": hashes.text,
        "title": upload.title,
        "body": upload.body,
        "events": events,
        "lane": int(lane),
    }


def _row_values(document: int, version: int, upload: Upload, hashes: Hashes) -> dict[str, Any]:
    return {
        "id": document,
        "kind": upload.kind,
        "version": version,
        "title": upload.title,
        "domain": upload.domain,
        "keywords": list(upload.keywords),
        "summary": upload.summary,
        "covers": list(upload.covers),
        "when_to": upload.when_to_retrieve,
        "source": upload.source,
        "revision": upload.revision,
        "metadata": json.dumps(upload.metadata, ensure_ascii=False),
        "meta_hash": hashes.meta,
    }


def _update_row(connection: Connection, row: Mapping[str, Any], upload: Upload, hashes: Hashes, version: int) -> None:
    run(connection, _SET_ROW, **_row_values(row["id"], version, upload, hashes))
    if row["meta_hash"] != hashes.meta:
        moved = {row["domain"], upload.domain} if row["version"] > 0 else {upload.domain}
        change_domains(connection, row["tenant"], [(domain, row["id"]) for domain in sorted(moved)])
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
    queue_prepare_of(connection, tenant, [document], int(Lane.LIVE))


def event_json(event: Event) -> dict[str, Any]:
    """An event as it is stored; ``pipeline.remembered.RawEvents`` are these."""
    blocks = [{k: v for k, v in asdict(b).items() if v is not None} for b in event.blocks]
    return {
        "at": event.at.isoformat(),
        "source": event.source,
        "user_id": event.user_id,
        "agent_id": event.agent_id,
        "blocks": blocks,
    }
