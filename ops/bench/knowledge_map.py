"""How fast the knowledge map is built and served: 50 domains × 200 documents over HTTP.

``python -m ops.bench.knowledge_map DATABASE_URL`` (an empty, migrated database; it is filled and left so).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

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


def _serve(url: str, ready: Any) -> None:
    parts = build(Settings(database_url=url))
    app = FastAPI()
    errors.install(app)
    app.include_router(knowledge_map.router)
    app.state.services = _Shared(parts)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    threading.Thread(target=lambda: ready.put(_port(server)), daemon=True).start()
    server.run()


def _port(server: uvicorn.Server) -> int:
    while not server.started:
        time.sleep(0.05)
    return int(server.servers[0].sockets[0].getsockname()[1])


def _cpu_seconds(pid: int | None) -> float:
    """What the server used of a CPU: on a busy machine the only figure that says what a request costs."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parts = build(Settings(database_url=sys.argv[1]))
    with parts.engine.begin() as connection:
        connection.execute(sa.text(FILL))
    parts.llm.tick()
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    server = context.Process(target=_serve, args=(sys.argv[1], ready), daemon=True)
    server.start()
    port = ready.get(timeout=60)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        began = time.perf_counter()
        first = client.get("/v1/knowledge-map")
        built = time.perf_counter() - began
        took = []
        before = _cpu_seconds(server.pid)
        for _ in range(500):
            began = time.perf_counter()
            client.get("/v1/knowledge-map").raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
        cpu = (_cpu_seconds(server.pid) - before) / len(took)
    took.sort()
    print(
        json.dumps(
            {
                "built_ms": round(built * 1000, 1),
                "served_p50_ms": round(statistics.median(took), 2),
                "served_p99_ms": round(took[-5], 2),
                "server_cpu_ms": round(cpu * 1000, 2),
                "tokens": estimate_tokens(first.text),
                "bytes": len(first.content),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
