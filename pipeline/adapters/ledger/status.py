"""What is there and what is waiting: the figures of ``/v1/status``, ``/metrics`` and ``wellhead status``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.adapters.ledger.connection import Ledger, one, rows, scalar
from pipeline.adapters.ledger.document_state import FROM_SQL, STATE_SQL
from pipeline.adapters.ledger.flips import SEARCHABLE_BUCKETS
from pipeline.documents import Lane, State

_TENANT = "(CAST(:tenant AS text) IS NULL OR {0}.tenant = :tenant)"


@dataclass(frozen=True, kw_only=True)
class LanePending:
    """Work that waits in one lane: documents not yet cut, passages not yet encoded, the age of the oldest."""

    lane: Lane
    documents: int
    passages: int
    tokens: int
    oldest_seconds: float


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Encoding over the last ``seconds``. ``batch_fill``: real tokens per token slot, 0…1; None: nothing encoded.

    ``measured_tokens_per_s`` is the rate while it encoded, over the newest batches however old; 0: never.
    """

    seconds: float
    passages: int
    copied: int
    tokens: int
    tokens_per_s: float
    batch_fill: float | None
    measured_tokens_per_s: float


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """``buckets``: (upper bound, how many at most that), cumulative, ``+Inf`` last; ``seconds``: the sum of all."""

    buckets: list[tuple[str, float]]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where one document stands, for somebody who waits for it. ``tokens``: of the version served."""

    key: str
    version: int
    state: State
    live_version: int | None
    passages: int
    tokens: int


class StatusLedger(Ledger):
    """Reads only. ``tenant=None`` counts all tenants: for ``/metrics`` and the operator."""

    def documents_by_state(self, tenant: str | None = None) -> dict[State, int]:
        """Documents by the state of their newest version; states that nothing is in are 0."""
        with self._transaction() as connection:
            found = rows(
                connection,
                f"SELECT state, count(*) AS n FROM (SELECT {STATE_SQL} AS state {FROM_SQL}"
                f" WHERE d.version > 0 AND {_TENANT.format('d')}) x GROUP BY state",
                tenant=tenant,
            )
        counted = {r["state"]: int(r["n"]) for r in found}
        return {state: counted.get(state, 0) for state in State}

    def pending(self, tenant: str | None = None) -> list[LanePending]:
        """Both lanes, live first. The age counts from the upload's commit."""
        with self._transaction() as connection:
            found = rows(connection, _PENDING, tenant=tenant)
        by_lane = {int(r.pop("lane")): r for r in found}
        empty = {"documents": 0, "passages": 0, "tokens": 0, "oldest_seconds": 0.0}
        return [LanePending(lane=lane, **by_lane.get(int(lane), empty)) for lane in Lane]

    def work(self, tenant: str | None = None) -> dict[str, int]:
        """Passages that are claimed and parked now."""
        with self._transaction() as connection:
            row = one(
                connection,
                "SELECT count(*) FILTER (WHERE state = 'claimed') AS claimed,"
                " count(*) FILTER (WHERE state = 'parked') AS parked FROM passage p"
                f" WHERE state IN ('claimed', 'parked') AND {_TENANT.format('p')}",
                tenant=tenant,
            )
        assert row is not None
        return {name: int(row[name]) for name in ("claimed", "parked")}

    def throughput(self, seconds: float = 60.0) -> Throughput:
        """What was encoded lately; the rate counts from the first batch in the window, not from its beginning."""
        with self._transaction() as connection:
            row = one(connection, _THROUGHPUT, seconds=seconds)
        assert row is not None
        return Throughput(
            seconds=float(row["span"]),
            passages=int(row["passages"]),
            copied=int(row["copied"]),
            tokens=int(row["tokens"]),
            tokens_per_s=round(row["tokens"] / row["span"], 1) if row["span"] else 0.0,
            batch_fill=round(row["tokens"] / row["slots"], 3) if row["slots"] else None,
            measured_tokens_per_s=round(float(row["measured"]), 1),
        )

    def searchable_seconds(self, seconds: float = 300.0) -> dict[Lane, dict[str, float]]:
        """Upload to searchable over the last ``seconds``, by lane: ``count``, ``p50``, ``p95`` in seconds."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT lane, count(*) AS count, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,"
                " percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95 FROM flip_log"
                " WHERE at > clock_timestamp() - make_interval(secs => :seconds) GROUP BY lane",
                seconds=seconds,
            )
        return {Lane(r["lane"]): {name: float(r[name]) for name in ("count", "p50", "p95")} for r in found}

    def counters(self) -> dict[str, int]:
        """Everything that was ever counted: fenced commits, lapsed claims, parked versions …"""
        return {name: value for name, value in self._counted().items() if not name.startswith("searchable.")}

    def searchable_histogram(self) -> dict[Lane, Histogram]:
        """Upload to searchable since the beginning, by lane."""
        counted = self._counted()
        found = {}
        for lane in Lane:
            name = f"searchable.{lane.name.lower()}"
            total, buckets = 0, []
            for bound in (*SEARCHABLE_BUCKETS, "inf"):
                total += counted.get(f"{name}.{bound}", 0)
                buckets.append(("+Inf" if bound == "inf" else str(bound), float(total)))
            found[lane] = Histogram(buckets=buckets, seconds=counted.get(f"{name}.milliseconds", 0) / 1000)
        return found

    def _counted(self) -> dict[str, int]:
        with self._transaction() as connection:
            return {
                r["name"]: int(r["value"]) for r in rows(connection, "SELECT name, value FROM counter ORDER BY name")
            }

    def backlog(self, tenant: str, lane: Lane, cap: int) -> int:
        """Work of one tenant that waits in one lane of the serving generation, counted up to ``cap``."""
        with self._transaction() as connection:
            return int(scalar(connection, _BACKLOG, tenant=tenant, lane=int(lane), cap=cap))

    def progress(self, tenant: str, keys: Sequence[str]) -> list[Progress]:
        """Those of ``keys`` that exist, in no order."""
        with self._transaction() as connection:
            found = rows(
                connection,
                f"SELECT d.key, d.version, {STATE_SQL} AS state, e.live_version, coalesce(e.live_total, 0) AS passages,"
                f" coalesce(e.live_tokens, 0) AS tokens {FROM_SQL}"
                " WHERE d.tenant = :tenant AND d.key = ANY(:keys) AND d.version > 0",
                tenant=tenant,
                keys=list(keys),
            )
        return [Progress(**{**r, "state": State(r["state"])}) for r in found]

    def passages_served(self) -> int:
        """Passages that the serving generation serves, in all tenants."""
        with self._transaction() as connection:
            return int(
                scalar(
                    connection,
                    "SELECT coalesce(sum(e.live_total), 0) FROM embedding e"
                    " JOIN generation g ON g.id = e.generation AND g.status = 'serving'",
                )
            )


_PENDING = f"""
WITH waiting AS (
    SELECT j.lane, 1 AS documents, 0 AS passages, 0 AS tokens, v.created_at AS since
    FROM prepare_job j JOIN document d ON d.id = j.document
    LEFT JOIN document_version v ON v.document = d.id AND v.version = d.version
    WHERE j.state <> 'parked' AND {_TENANT.format("j")}
    UNION ALL
    SELECT e.lane, 0, 0, 0, e.requested_at FROM embedding e
    JOIN generation g ON g.id = e.generation AND g.status IN ('serving', 'building')
    JOIN document d ON d.id = e.document
    WHERE e.live_version IS DISTINCT FROM e.target_version AND e.parked = 0 AND {_TENANT.format("d")}
    UNION ALL
    SELECT p.lane, 0, count(*), sum(p.tokens), NULL FROM passage p
    WHERE p.state = 'pending' AND {_TENANT.format("p")} GROUP BY p.lane
)
SELECT lane, sum(documents)::bigint AS documents, sum(passages)::bigint AS passages, sum(tokens)::bigint AS tokens,
       greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0))::float AS oldest_seconds
FROM waiting GROUP BY lane
"""

_THROUGHPUT = """
SELECT coalesce(sum(passages), 0) AS passages, coalesce(sum(copied), 0) AS copied,
       coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(slots), 0)::bigint AS slots,
       coalesce(extract(epoch FROM clock_timestamp() - min(at - make_interval(secs => seconds))), 0)::float AS span,
       (SELECT coalesce(sum(tokens) / nullif(sum(seconds), 0), 0)
        FROM (SELECT tokens, seconds FROM embed_log WHERE tokens > 0 ORDER BY id DESC LIMIT 200) n)::float AS measured
FROM embed_log WHERE at > clock_timestamp() - make_interval(secs => :seconds)
"""

# Only what the tenant itself put into the lane counts: a reindex must not close the door to uploads.
_BACKLOG = """
SELECT (SELECT count(*) FROM (SELECT FROM passage p JOIN generation g ON g.id = p.generation AND g.status = 'serving'
                              WHERE p.state = 'pending' AND p.cohort IS NULL AND p.lane = :lane AND p.tenant = :tenant
                              LIMIT :cap) x)
     + (SELECT count(*) FROM (SELECT FROM prepare_job WHERE state = 'pending' AND lane = :lane AND tenant = :tenant
                              LIMIT :cap) y)
"""
