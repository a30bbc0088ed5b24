"""The scripted LLM server as a fixture, and the LLM parts on a fresh database."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipeline.breaker import Breaker
from pipeline.llm_wiring import LlmParts
from pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class LlmServer:
    """A client of the scripted server's control side."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._control = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def script(self, *entries: dict, latency: float = 0.0) -> None:
        self._control.post("/script", json={"script": list(entries), "latency": latency})

    def calls(self) -> list[dict]:
        return self._control.get("/calls").json()["calls"]

    def prompts(self) -> list[str]:
        return [c["request"]["messages"][1]["content"] for c in self.calls()]

    def most_in_flight(self) -> int:
        return self._control.get("/calls").json()["most_in_flight"]

    def forget(self) -> None:
        self._control.delete("/calls")


@pytest.fixture(scope="session")
def llm_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    port_file = tmp_path_factory.mktemp("llm") / "port"
    process = subprocess.Popen([sys.executable, "-m", "tests.llm_server", str(port_file)], cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while not port_file.exists():
            assert process.poll() is None and time.monotonic() < deadline, "the scripted LLM server did not start"
            time.sleep(0.02)
        yield LlmServer(int(port_file.read_text()))
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def llm_server(llm_process: LlmServer) -> LlmServer:
    llm_process.script()
    llm_process.forget()
    return llm_process


class LlmSide:
    """LLM parts with their breaker and the few steps tests repeat."""

    def __init__(self, ledgers, **settings) -> None:
        fast = {"llm_domain_quiet_seconds": 0.0, "retry_base_seconds": 0.0, "llm_timeout_seconds": 5.0}
        self.parts = LlmParts(Settings(**{**fast, **settings}), lambda: ledgers.engine)
        self.parts.maps.recheck = 0.0
        self.breaker = Breaker(base=0.0)

    def describe(self, turns: int = 10_000) -> int:
        return self.parts.describer(self.breaker).run(counted(turns))

    def refresh(self, turns: int = 10_000) -> int:
        return self.parts.refresher(self.breaker).run(counted(turns))


def counted(turns: int):
    left = iter(range(turns))
    return lambda: next(left, None) is not None


@pytest.fixture
def llm_side(ledgers, llm_server):
    """``llm_side()``: with the scripted server; ``llm_side(llm_base_url="")``: without an endpoint."""

    def make(**settings) -> LlmSide:
        return LlmSide(ledgers, **{"llm_base_url": llm_server.url, "llm_model": "scripted", **settings})

    return make
