"""The flip: the moment a version becomes the one that serves."""

from __future__ import annotations

from sqlalchemy import Connection

from pipeline.adapters.ledger.changes import queue_prepare
from pipeline.adapters.ledger.connection import bump, count_event, one, run
from pipeline.documents import Lane

# Upper bounds in seconds of the upload-to-searchable histogram.
SEARCHABLE_BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def flip_row(connection: Connection, generation: int, document: int, version: int, grace: float = 10.0) -> bool:
    """Makes ``version`` live in one generation if it still is its complete target.

    The caller holds the document row's lock. The version before stays acceptable for ``grace`` seconds, because
    Milvus serves bounded-stale reads; its keys go to the trash then. The one before that goes at once.
    """
    row = one(
        connection,
        "SELECT * FROM embedding WHERE generation = :generation AND document = :document FOR UPDATE",
        generation=generation,
        document=document,
    )
    if row is None or row["target_version"] != version or row["done"] != row["total"]:
        return False
    if row["live_version"] == version:
        # A repair: the version that serves got its lost vectors back, nothing else changes.
        return bool(_drop_passages(connection, generation, document, version))
    if row["live_version"] is not None and row["live_total"]:
        run(
            connection,
            "INSERT INTO vector_trash (generation, document, version, total, due) VALUES (:generation, :document,"
            " :version, :total, clock_timestamp() + make_interval(secs => :grace))",
            generation=generation,
            document=document,
            version=row["live_version"],
            total=row["live_total"],
            # A lookup that took its candidates just before the grace ended still needs the vectors' payload.
            grace=2 * grace,
        )
    run(
        connection,
        "UPDATE embedding SET prev_version = live_version, prev_total = live_total, live_version = target_version,"
        " live_total = total, live_tokens = tokens, flipped_at = clock_timestamp()"
        " WHERE generation = :generation AND document = :document",
        generation=generation,
        document=document,
    )
    _drop_passages(connection, generation, document, version)
    _log_flip(connection, generation, document, version)
    _forget_texts(connection, document)
    newest = one(connection, "SELECT id, tenant, version, deleted_version FROM document WHERE id = :id", id=document)
    assert newest is not None
    if newest["version"] > version and newest["deleted_version"] != newest["version"]:
        requeue(connection, document)
    bump(connection, newest["tenant"], "l0")
    return True


def _drop_passages(connection: Connection, generation: int, document: int, version: int) -> int:
    return run(
        connection,
        "DELETE FROM passage WHERE generation = :generation AND document = :document AND version <= :version",
        generation=generation,
        document=document,
        version=version,
    )


def requeue(connection: Connection, document: int) -> None:
    """The newest version waited while another was in flight: its turn now, in the lane it came in."""
    queue_prepare(
        connection,
        "SELECT d.id, d.tenant FROM document d WHERE d.id = :document",
        0,
        document=document,
    )
    run(
        connection,
        "UPDATE prepare_job j SET lane = v.lane FROM document d JOIN document_version v ON v.document = d.id"
        " AND v.version = d.version WHERE j.document = d.id AND d.id = :document",
        document=document,
    )


def _forget_texts(connection: Connection, document: int) -> None:
    """Drops version texts that are neither the newest nor served, served before or in flight anywhere."""
    run(
        connection,
        "DELETE FROM document_version v USING document d WHERE d.id = :document AND v.document = d.id"
        " AND v.version < d.version AND NOT EXISTS (SELECT FROM embedding e WHERE e.document = d.id"
        " AND v.version IN (e.live_version, e.prev_version, e.target_version))",
        document=document,
    )


def _log_flip(connection: Connection, generation: int, document: int, version: int) -> None:
    """Upload to searchable: a row for recent quantiles, and counters that make a histogram for ever."""
    logged = one(
        connection,
        "INSERT INTO flip_log (lane, seconds) SELECT v.lane, extract(epoch FROM clock_timestamp() - v.created_at)"
        " FROM document_version v JOIN generation g ON g.id = :generation AND g.status = 'serving'"
        " WHERE v.document = :document AND v.version = :version"
        # A version that another generation served before was searchable long ago.
        " AND NOT EXISTS (SELECT FROM embedding e WHERE e.document = v.document AND e.generation <> :generation"
        " AND e.live_version >= v.version) RETURNING lane, seconds",
        generation=generation,
        document=document,
        version=version,
    )
    if logged is None:
        return
    bucket = next((b for b in SEARCHABLE_BUCKETS if logged["seconds"] <= b), None)
    name = f"searchable.{Lane(logged['lane']).name.lower()}"
    count_event(connection, f"{name}.{'inf' if bucket is None else bucket}")
    count_event(connection, f"{name}.milliseconds", round(logged["seconds"] * 1000))
