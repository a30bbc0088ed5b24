"""The HTTP API in the test's own process, on a real PostgreSQL, with nothing behind its other addresses."""

from __future__ import annotations

import json
from typing import Any

from fastapi.testclient import TestClient

from api.app import create_app
from pipeline.settings import Settings
from pipeline.wiring import build

NDJSON = {"Content-Type": "application/x-ndjson"}


class Rings:
    """Stands in for the broker's bell: counts."""

    def __init__(self) -> None:
        self.count = 0

    def ring(self) -> None:
        self.count += 1

    def close(self) -> None:
        return


class Server:
    """The application, its client and its bell."""

    def __init__(self, **settings: Any) -> None:
        self.parts = build(Settings(milvus_uri="http://127.0.0.1:1", memory_url="redis://127.0.0.1:1/0", **settings))
        self.app = create_app(parts=self.parts)
        self.rings = Rings()
        object.__setattr__(self.app.state.services, "bell", self.rings)
        self.client = TestClient(self.app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def problem(response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["status"] == status and content["title"] and content["type"] and content["detail"]
    return content


def lines(*documents: Any) -> bytes:
    return b"".join((d if isinstance(d, bytes) else json.dumps(d).encode()) + b"\n" for d in documents)
