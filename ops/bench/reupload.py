"""Documents a second of a batch upload in which nothing changed, over HTTP, and the work that it makes: none.

python -m ops.bench.reupload [documents]
"""

from __future__ import annotations

import json
import sys
import time

import httpx
import sqlalchemy as sa

from ops.bench.lookup import serving
from ops.bench.stage import stage
from pipeline.wiring import Parts

SENTENCE = "Pump {n} stops when its valve is shut; open valve {n}, wait for pressure, and start it again. "


def batch(documents: int) -> bytes:
    """JSON lines of small runbooks, about 900 characters each."""
    lines = ({"key": f"pump/{n}", "title": f"Pump {n}", "body": SENTENCE.format(n=n) * 10} for n in range(documents))
    return "\n".join(json.dumps(line) for line in lines).encode()


def work(parts: Parts) -> dict[str, int]:
    """Documents that wait to be cut, and versions stored."""
    with parts.engine.begin() as connection:
        counted = "SELECT (SELECT count(*) FROM prepare_job) AS waiting, count(*) AS versions FROM document_version"
        return dict(connection.execute(sa.text(counted)).mappings().one())


def main() -> None:
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    content = batch(documents)
    headers = {"content-type": "application/x-ndjson", "accept": "application/json"}
    with stage() as (stack, parts):
        parts.ensure_generation()
        with serving(stack, parts) as url:
            for turn in ("first upload", "again, unchanged", "again, unchanged"):
                before, begun = work(parts), time.perf_counter()
                answer = httpx.post(f"{url}/v1/documents:batch", content=content, headers=headers, timeout=600)
                took = time.perf_counter() - begun
                made = {name: n - before[name] for name, n in work(parts).items()}
                print(f"{turn}: {documents / took:,.0f} documents/s, {answer.json()}, made: {made}")


if __name__ == "__main__":
    main()
