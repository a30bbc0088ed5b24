"""How far every generation is, and what a fingerprint still lacks: counted in documents and in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, one, rows


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """One row of ``GET /v1/generations``. ``held``: why it does not serve although it could."""

    id: int
    fingerprint: str
    status: str
    coverage: float
    documents_done: int
    documents_eligible: int
    tokens_done: int
    tokens_total: int
    parked: int
    tokens_per_s: float
    eta_s: float | None
    recall_check: dict[str, Any] | None
    held: str | None


@dataclass(frozen=True, kw_only=True)
class Stale:
    """What has no vectors of a fingerprint in its newest version. ``tokens`` are those of the vectors that serve now.

    ``documents_total``: all that can be embedded; ``parked`` ones failed for good and are stale, too.
    ``tokens_per_s``: measured while encoding, over the newest batches; 0 when nothing was ever encoded.
    """

    documents: int
    tokens: int
    parked: int
    documents_total: int
    tokens_per_s: float

    @property
    def seconds(self) -> float | None:
        """How long it takes at the measured rate; None when there is no rate yet."""
        if not self.tokens:
            return 0.0
        return round(self.tokens / self.tokens_per_s, 1) if self.tokens_per_s else None


class ProgressLedger(Ledger):
    """Reads only, over all tenants: generations belong to the server."""

    def generations(self) -> list[GenerationProgress]:
        """Every generation that is not dropped, oldest first."""
        with self._transaction() as connection:
            return [_progress(r) for r in rows(connection, _GENERATIONS)]

    def stale(self, fingerprint: str) -> Stale:
        """What would have to be embedded for this fingerprint to be complete."""
        with self._transaction() as connection:
            row = one(connection, STALE, fingerprint=fingerprint)
        assert row is not None
        return Stale(
            documents=row["documents"],
            tokens=int(row["tokens"] + row["unknown"] * row["mean"]),
            parked=row["parked"],
            documents_total=row["total"],
            tokens_per_s=round(row["measured"], 1),
        )


def _progress(row: dict[str, Any]) -> GenerationProgress:
    eligible, done = int(row["documents_eligible"]), int(row["documents_done"])
    known, tokens_done = int(row["documents_known"]), int(row["tokens_done"])
    # Documents not yet cut for this generation count as long as the average of those that are.
    mean = row["tokens_total"] / known if known else row["mean_tokens"]
    total = int(row["tokens_total"] + mean * max(0, eligible - known))
    rate, left = float(row["tokens_per_s"]), max(0, total - tokens_done)
    return GenerationProgress(
        id=row["id"],
        fingerprint=row["fingerprint"],
        status=row["status"],
        coverage=round(done / eligible, 4) if eligible else 1.0,
        documents_done=done,
        documents_eligible=eligible,
        tokens_done=tokens_done,
        tokens_total=total,
        parked=int(row["parked"]),
        tokens_per_s=round(rate, 1),
        eta_s=0.0 if done >= eligible else round(left / rate, 1) if rate else None,
        recall_check=row["recall_check"],
        held=row["held"],
    )


_GENERATIONS = """
WITH eligible AS (
    SELECT id, version FROM document WHERE version > 0 AND deleted_version IS DISTINCT FROM version
), rate AS (
    SELECT generation, sum(tokens) / greatest(1.0, extract(epoch FROM clock_timestamp()
           - min(at - make_interval(secs => seconds)))) AS tokens_per_s
    FROM embed_log WHERE at > clock_timestamp() - interval '60 s' GROUP BY generation
), mean AS (
    SELECT coalesce(avg(live_tokens), 0)::float AS tokens FROM embedding e
    JOIN generation g ON g.id = e.generation AND g.status = 'serving' WHERE e.live_version IS NOT NULL
)
SELECT g.id, g.fingerprint, g.status, g.recall_check, g.held, (SELECT count(*) FROM eligible) AS documents_eligible,
       (SELECT tokens FROM mean) AS mean_tokens,
       coalesce(e.known, 0) AS documents_known, coalesce(e.done, 0) AS documents_done,
       coalesce(e.tokens_done, 0)::float AS tokens_done, coalesce(e.tokens_total, 0)::float AS tokens_total,
       coalesce(e.parked, 0) AS parked, coalesce(r.tokens_per_s, 0)::float AS tokens_per_s
FROM generation g
LEFT JOIN rate r ON r.generation = g.id
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.target_version IS NOT NULL) AS known,
           count(*) FILTER (WHERE m.live_version = d.version) AS done,
           sum(m.live_tokens) FILTER (WHERE m.live_version = d.version) AS tokens_done,
           sum(CASE WHEN m.live_version = m.target_version THEN m.live_tokens ELSE m.tokens END)
               FILTER (WHERE m.target_version IS NOT NULL) AS tokens_total,
           count(*) FILTER (WHERE m.parked > 0) AS parked
    FROM embedding m JOIN eligible d ON d.id = m.document WHERE m.generation = g.id
) e ON true
WHERE g.status <> 'dropped' ORDER BY g.id
"""

STALE = """
WITH lacking AS (
    SELECT s.live_tokens AS tokens, coalesce(w.parked > 0, false) AS parked
    FROM document d
    LEFT JOIN embedding w ON w.document = d.id AND w.generation =
        (SELECT id FROM generation WHERE fingerprint = :fingerprint AND status <> 'dropped')
    LEFT JOIN embedding s ON s.document = d.id AND s.live_version IS NOT NULL AND s.generation =
        (SELECT id FROM generation WHERE status = 'serving')
    WHERE d.version > 0 AND d.deleted_version IS DISTINCT FROM d.version AND w.live_version IS DISTINCT FROM d.version
)
SELECT count(*) AS documents, coalesce(sum(tokens), 0)::float AS tokens, count(*) FILTER (WHERE tokens IS NULL) AS unknown,
       count(*) FILTER (WHERE parked) AS parked,
       coalesce(avg(tokens), 0)::float AS mean,
       (SELECT count(*) FROM document WHERE version > 0 AND deleted_version IS DISTINCT FROM version) AS total,
       (SELECT coalesce(sum(tokens) / nullif(sum(seconds), 0), 0)
        FROM (SELECT tokens, seconds FROM embed_log WHERE tokens > 0 ORDER BY id DESC LIMIT 200) n)::float AS measured
FROM lacking
"""
