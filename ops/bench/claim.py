"""Claiming from a large table of pending passages: passages/s of one worker without the model, and the plan.

python -m ops.bench.claim [rows]
"""

from __future__ import annotations

import sys
import time

import sqlalchemy as sa

from ops.bench.stage import stage
from pipeline.documents import Lane
from pipeline.work import GroupFigures

SEED = """
INSERT INTO document (tenant, key, kind, version) SELECT 't' || (i % 20), 'd' || i, 'article', 1
FROM generate_series(1, :documents) i;
"""
PASSAGES = """
INSERT INTO passage (generation, document, version, ordinal, hash, text, start, "end", tokens, lane, tenant)
SELECT 1, d.id, 1, o, md5(d.id::text || o), 'text', 0, 4, 10, 1, d.tenant
FROM document d CROSS JOIN generate_series(0, 9) o
"""


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with stage() as (_, parts):
        generation = parts.ensure_generation()
        assert generation is not None
        with parts.engine.begin() as connection:
            connection.execute(sa.text("SET statement_timeout = 0"))
            connection.execute(sa.text(SEED), {"documents": rows // 10})
            connection.execute(
                sa.text(
                    "INSERT INTO embedding (generation, document, target_version, total) SELECT 1, id, 1, 10 FROM document"
                )
            )
            connection.execute(sa.text(PASSAGES.replace("::text", "||''")))
        with parts.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE passage"))
        claimed, claim_s, finish_s, after = 0, 0.0, 0.0, ""
        for _ in range(200):
            begun = time.perf_counter()
            group = parts.passages.claim_passages(generation.id, Lane.BACKFILL, 256, 120, 900, after)
            claim_s += time.perf_counter() - begun
            assert group is not None
            after = group.after
            claimed += len(group.passages)
            begun = time.perf_counter()
            parts.passages.finish(
                group,
                group.passages,
                GroupFigures(passages=len(group.passages), copied=0, tokens=0, slots=0, seconds=0),
            )
            parts.passages.finish_claim(group.token)
            finish_s += time.perf_counter() - begun
        print(
            f"{rows:,} pending: claim {claimed / claim_s:,.0f} passages/s; claim + finish {claimed / (claim_s + finish_s):,.0f} passages/s"
        )
        print(plan(parts.engine))


def plan(engine: sa.Engine) -> str:
    statement = (
        "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT w.id FROM passage w WHERE w.state = 'pending'"
        " AND w.cohort IS NULL AND w.generation = 1 AND w.lane = 1 AND w.tenant = 't1'"
        " AND w.not_before <= clock_timestamp() ORDER BY w.not_before, w.id LIMIT 64"
    )
    with engine.begin() as connection:
        return "\n".join(r[0] for r in connection.execute(sa.text(statement)))


if __name__ == "__main__":
    main()
