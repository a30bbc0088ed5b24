"""Pipeline tokens/s against the same encoder in a bare loop over the same length-sorted passages.

    python -m ops.bench.ingest [documents]

Both in one run, in turns, so that a change of the machine's speed meets both alike. Reports the ratio.
"""

from __future__ import annotations

import statistics
import sys
import time

from ops.bench.stage import corpus, stage
from pipeline.breaker import Breaker
from pipeline.documents import Lane, Upload
from pipeline.generations import in_order
from pipeline.limits import Limits
from pipeline.packing import pack
from pipeline.ports import Role
from pipeline.prepare import prepare
from pipeline.reading import read_bytes
from pipeline.receive import receive_many
from pipeline.wiring import Parts

ROUNDS = 3


def uploads(limit: int, limits: Limits) -> list[Upload]:
    found = []
    for path in corpus("runbooks-en", "tidb-zh")[:limit]:
        found += [u for u in read_bytes(path.name, path.read_bytes(), limits) if isinstance(u, Upload)]
    return found


def bare(parts: Parts, texts: list[str]) -> float:
    """Seconds of the encoder alone: tokenised beforehand, packed as the pipeline packs."""
    ids = parts.embedder.tokenize(texts, Role.PASSAGE)
    begun = time.perf_counter()
    for batch in pack([len(i) for i in ids], parts.settings.batch_tokens):
        parts.embedder.encode([ids[i] for i in batch])
    return time.perf_counter() - begun


def main() -> None:
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    with stage() as (_, parts):
        parts.ensure_generation()
        documents = uploads(limit, parts.limits)
        shares = [documents[i::ROUNDS] for i in range(ROUNDS)]
        ratios = []
        for number, found in enumerate(shares):
            share = [Upload(key=f"{number}/{i}", title=u.title, body=u.body) for i, u in enumerate(found)]
            begun = time.perf_counter()
            list(receive_many(parts.documents, "default", share, Lane.BACKFILL))
            prepare(parts.preparing, parts.generations, parts.tokenizer_for, parts.prepare_limits, lambda: True)
            prepared = time.perf_counter() - begun
            texts = waiting(parts)
            alone = bare(parts, texts)
            begun = time.perf_counter()
            drain = parts.drain(Breaker())
            drain.run(in_order(parts.generations.active()), lambda: True)
            took = time.perf_counter() - begun
            tokens = sum(len(i) for i in parts.embedder.tokenize(texts, Role.PASSAGE))
            ratios.append(alone / took)
            print(
                f"round {number + 1}: {len(share)} documents, {len(texts)} passages, {tokens} tokens;"
                f" receive+prepare {prepared:.1f} s, bare {tokens / alone:,.0f} tokens/s,"
                f" pipeline {tokens / took:,.0f} tokens/s, ratio {alone / took:.3f}"
            )
        print(f"median ratio pipeline/bare: {statistics.median(ratios):.3f}")


def waiting(parts: Parts) -> list[str]:
    import sqlalchemy as sa

    with parts.engine.begin() as connection:
        return [
            r[0] for r in connection.execute(sa.text("SELECT text FROM passage WHERE state = 'pending' ORDER BY id"))
        ]


if __name__ == "__main__":
    main()
