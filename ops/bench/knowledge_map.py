"""How fast the knowledge map is built and served: 50 domains × 200 documents over HTTP.

``python -m ops.bench.knowledge_map DATABASE_URL`` (an empty, migrated database; it is filled and left so).
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time

import httpx
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI

from api import errors
from api.auth import Gate
from api.routes import knowledge_map
from pipeline.llm import estimate_tokens
from pipeline.settings import Settings
from pipeline.wiring import Parts, build

FILL = """
INSERT INTO document (tenant, key, kind, domain, version, title, covers) SELECT 'default', format('d%s/%s', i, j),
 'article', format('domain-%s', i), 1, format('第 %s 份文档：支付失败排查手册', j), ARRAY['支付超时', '扣款无回调']
FROM generate_series(1, 50) i, generate_series(1, 200) j ON CONFLICT DO NOTHING
"""


class _Shared:
    def __init__(self, parts: Parts) -> None:
        self.parts, self.gate = parts, Gate(parts.keys)


def main() -> None:
    parts = build(Settings(database_url=sys.argv[1]))
    with parts.engine.begin() as connection:
        connection.execute(sa.text(FILL))
    parts.llm.tick()
    app = FastAPI()
    errors.install(app)
    app.include_router(knowledge_map.router)
    app.state.services = _Shared(parts)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        began = time.perf_counter()
        first = client.get("/v1/knowledge-map")
        built = time.perf_counter() - began
        took = []
        for _ in range(500):
            began = time.perf_counter()
            client.get("/v1/knowledge-map").raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(
        json.dumps(
            {
                "built_ms": round(built * 1000, 1),
                "served_p50_ms": round(statistics.median(took), 2),
                "served_p99_ms": round(took[-5], 2),
                "tokens": estimate_tokens(first.text),
                "bytes": len(first.content),
            }
        )
    )


if __name__ == "__main__":
    main()
