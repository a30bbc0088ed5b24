"""The HTTP server is killed between commit and publish, and answers while the broker is frozen."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.faults.harness import ROUNDS, text
from tests.faults.invariant import check


def put(url, key, body):
    return httpx.put(f"{url}/v1/documents/{key}", json={"key": key, "body": body}, timeout=60)


def threads(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_what_was_acknowledged_before_the_api_was_killed_is_not_lost(fleet):
    url = fleet.start_api()
    acknowledged: list[str] = []
    stop = threading.Event()

    def upload():
        for number in range(10_000):
            if stop.is_set():
                return
            try:
                if put(url, f"up{number}", text(number, 1)).status_code == 202:
                    acknowledged.append(f"up{number}")
            except httpx.HTTPError:
                time.sleep(0.05)  # the server is away: that upload was not acknowledged

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        for _ in range(min(ROUNDS, 3)):
            seen = len(acknowledged)
            fleet.wait("uploads are acknowledged", lambda seen=seen: len(acknowledged) >= seen + 5)
            fleet.kill("api")
            fleet.start_api()
    finally:
        stop.set()
        thread.join()
    stored = {r["key"]: r["version"] for r in fleet.sql("SELECT key, version FROM document WHERE version > 0")}
    assert set(acknowledged) <= set(stored)
    fleet.newest |= {("default", k): text(int(k[2:]), 1) for k in stored if k.startswith("up")}
    report = check(fleet, "API SIGKILL between commit and publish", injected=min(ROUNDS, 3), recovery=fleet.settle())
    assert report.parked == 0


@pytest.mark.faults_long
def test_the_api_answers_while_the_broker_is_frozen(fleet):
    url = fleet.start_api()
    assert put(url, "before", text(1, 1)).status_code == 202
    fleet.newest["default", "before"] = text(1, 1)
    fleet.load(20)
    broker, api = fleet.services.children["valkey-broker"].pid, fleet.children["api"].pid
    took, before = [], threads(api)
    os.kill(broker, signal.SIGSTOP)
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            began, key = time.monotonic(), f"frozen{len(took)}"
            assert put(url, key, text(2000 + len(took), 1)).status_code == 202
            fleet.newest["default", key] = text(2000 + len(took), 1)
            took.append(time.monotonic() - began)
        grown = threads(api) - before
    finally:
        os.kill(broker, signal.SIGCONT)
    assert len(took) > 3, "an upload does not wait until the broker's socket gives up"
    assert grown < 45, "no more than the server's own pool of threads"
    report = check(fleet, "Valkey SIGSTOP 20 s, through the API", injected=1, recovery=fleet.settle())
    assert report.parked == 0
