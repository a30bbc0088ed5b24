"""What a lookup reads: who serves, what is live, the names for L0, the texts to hand out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, one, rows, scalar
from pipeline.adapters.ledger.generations import generation_of
from pipeline.content import Excerpt
from pipeline.documents import Kind
from pipeline.lexicon import Changes, LiveNames
from pipeline.live import LiveDocument, Liveness, Place, ServingRow

# A transaction stamps a row and commits later; statements end within this time, so none is missed.
_OVERLAP_SECONDS = 60.0
# Documents that are counted as not yet searchable are looked for among so many; beyond that it is "at least".
_PENDING_SCANNED = 2000
# One round trip: at least one row comes, with what waits: articles received but not cut yet, or cut but not all
# embedded; parked ones do not count.
_LIVENESS = """
WITH waiting AS (
    SELECT count(*) AS pending FROM (
        (SELECT document FROM prepare_job WHERE state <> 'parked' AND tenant = :tenant LIMIT :scanned)
        UNION
        (SELECT document FROM embedding WHERE generation = :generation
         AND live_version IS DISTINCT FROM target_version AND parked = 0 LIMIT :scanned)) w
    JOIN document d ON d.id = w.document
    WHERE d.tenant = :tenant AND d.kind = :kind AND (CAST(:domain AS text) IS NULL OR d.domain = :domain)
      AND (d.deleted_version IS NULL OR d.deleted_version < d.version)
), live AS (
    SELECT d.id AS document, d.key, d.domain, d.source, d.updated_at, d.when_to_retrieve, e.live_version,
           CASE WHEN e.flipped_at > clock_timestamp() - make_interval(secs => :grace) THEN e.prev_version END
           AS prev_version, v.title
    FROM document d
    JOIN embedding e ON e.generation = :generation AND e.document = d.id
    JOIN document_version v ON v.document = d.id AND v.version = e.live_version
    WHERE (d.id = ANY(:documents) OR (d.tenant = :tenant AND d.key = ANY(:keys)))
      AND d.tenant = :tenant AND d.kind = :kind AND (CAST(:domain AS text) IS NULL OR d.domain = :domain)
      AND d.metadata @> CAST(:metadata AS jsonb)
      AND (d.deleted_version IS NULL OR d.deleted_version < d.version)
      AND (d.consumed_version IS NULL OR d.consumed_version < d.version)
)
SELECT waiting.pending, live.* FROM waiting LEFT JOIN live ON true
"""


class LookupLedger(Ledger):
    """The ``Lookups`` and ``NamesSource`` ports on PostgreSQL. Every method is one or two statements."""

    def serving(self, tenant: str) -> ServingRow | None:
        """The serving generation, its calibration and how far the tenant's names have changed."""
        with self._reading() as connection:
            row = one(
                connection,
                "SELECT g.*, c.model AS calibration_model, coalesce((SELECT value FROM change_counter"
                " WHERE tenant = :tenant AND name = 'l0'), 0) AS change FROM generation g"
                " LEFT JOIN calibration c ON c.id = g.calibration WHERE g.status = 'serving'",
                tenant=tenant,
            )
        if row is None:
            return None
        return ServingRow(generation=generation_of(row), calibration=row["calibration_model"], change=row["change"])

    def liveness(
        self,
        tenant: str,
        generation: int,
        documents: Sequence[int],
        *,
        keys: Sequence[str] = (),
        domain: str | None,
        metadata: Mapping[str, Any],
        grace: float,
    ) -> Liveness:
        """Those of ``documents`` and ``keys`` that may be served now, with the versions that may be shown.

        Tenant, kind, domain and metadata are checked here again: the vector store may be behind.
        """
        with self._reading() as connection:
            found = rows(
                connection,
                _LIVENESS,
                tenant=tenant,
                kind=str(Kind.ARTICLE),
                generation=generation,
                documents=list(documents),
                keys=list(keys),
                domain=domain,
                metadata=json.dumps(dict(metadata), ensure_ascii=False),
                grace=grace,
                scanned=_PENDING_SCANNED,
            )
        pending = [r.pop("pending") for r in found]
        live = (LiveDocument(**r) for r in found if r["document"] is not None)
        return Liveness(documents={each.document: each for each in live}, pending=pending[0])

    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]:
        """For each place the body from ``start`` on, at most ``length`` characters; missing versions are left out."""
        with self._reading() as connection:
            found = rows(
                connection,
                "SELECT v.document, v.version, p.start, substr(v.body, p.start + 1, p.length) AS text,"
                " char_length(v.body) AS length, CASE WHEN p.start = 0 THEN 0 ELSE"
                " char_length(left(v.body, p.start)) - char_length(replace(left(v.body, p.start), E'\\n', ''))"
                " END AS before FROM unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[]),"
                " CAST(:starts AS int[]), CAST(:lengths AS int[])) AS p (document, version, start, length)"
                " JOIN document_version v USING (document, version) WHERE v.body IS NOT NULL",
                documents=[p.document for p in places],
                versions=[p.version for p in places],
                starts=[p.start for p in places],
                lengths=[p.length for p in places],
            )
        return {
            (r["document"], r["version"]): Excerpt(
                text=r["text"], offset=r["start"], first_line=r["before"] + 1, length=r["length"]
            )
            for r in found
        }

    def names(self, tenant: str, generation: int, since: float | None) -> Changes:
        """Titles (of the live version) and keywords of all live articles, or of those changed since the mark."""
        recent = (
            "" if since is None else " AND (d.updated_at > to_timestamp(:since) OR e.flipped_at > to_timestamp(:since))"
        )
        with self._transaction() as connection:
            mark = float(scalar(connection, "SELECT extract(epoch FROM clock_timestamp())"))
            found = rows(
                connection,
                "SELECT d.id AS document, CASE WHEN d.deleted_version = d.version THEN NULL ELSE e.live_version END"
                " AS version, coalesce(v.title, '') AS title, d.keywords FROM document d"
                " LEFT JOIN embedding e ON e.generation = :generation AND e.document = d.id"
                " LEFT JOIN document_version v ON v.document = d.id AND v.version = e.live_version"
                f" WHERE d.tenant = :tenant AND d.kind = :kind{recent}",
                tenant=tenant,
                kind=str(Kind.ARTICLE),
                generation=generation,
                since=since,
            )
        return Changes(
            names=[LiveNames(**{**r, "keywords": tuple(r["keywords"])}) for r in found], mark=mark - _OVERLAP_SECONDS
        )

    def bodies(self, versions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The bodies of (document, version) pairs, up to 200,000 characters each: more names nothing by itself."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT v.document, v.version, left(v.body, 200000) AS body FROM document_version v"
                " JOIN unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[])) AS w (document, version)"
                " USING (document, version) WHERE v.body IS NOT NULL",
                documents=[d for d, _ in versions],
                versions=[v for _, v in versions],
            )
        return {(r["document"], r["version"]): r["body"] for r in found}
