"""A server of the HTTP API for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.integration.api_server import Server
from tests.integration.stages_bench import Bench
from tests.plugins.parts import Ledgers


@pytest.fixture
def settings(database_url: str, tmp_path) -> dict[str, Any]:
    return {"database_url": database_url, "broker_url": "redis://127.0.0.1:1/0", "data_dir": tmp_path}


@pytest.fixture
def server(settings) -> Iterator[Server]:
    made = Server(**settings)
    with made.client:
        yield made


@pytest.fixture
def client(server: Server) -> TestClient:
    return server.client


@pytest.fixture
def bench(ledgers: Ledgers) -> Bench:
    """The stages in this process."""
    return Bench(ledgers)
