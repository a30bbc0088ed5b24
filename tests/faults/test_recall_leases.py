"""Fifty callers, two hundred episodes, processes killed with -9: each episode is consumed once, and none is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.recall_bench import RecallBench

ROOT = Path(__file__).resolve().parents[2]
EPISODES = 200
PROCESSES = 5
CALLERS = 10
LEASE_SECONDS = 4.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_episode_is_consumed_once_though_callers_are_killed(ledgers, database_url, tmp_path):
    bench = RecallBench(ledgers)
    for i in range(EPISODES):
        bench.put(f"pump/{i}", f"the pump leaks oil, number {i}")
    bench.embed()
    log = tmp_path / "log"
    command = [
        *(sys.executable, "-m", "tests.faults.lease_callers"),
        *(database_url, str(bench.generation.id), str(log), str(CALLERS), str(LEASE_SECONDS)),
    ]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(PROCESSES)]
    killed = 0
    try:
        while killed < 3:
            wanted = EPISODES * (killed + 1) // 5
            while lines(log, "held") < wanted:
                time.sleep(0.02)
            victim = running.pop(0)
            victim.kill()
            victim.wait()
            killed += 1
            running.append(subprocess.Popen(command, cwd=ROOT))
        for process in running:
            assert process.wait(timeout=300) == 0
    finally:
        for process in running:
            process.kill()
    states = Counter(r["s"] for r in ledgers.rows("SELECT consumed_version = version AS s FROM document"))
    assert states == {True: EPISODES}
    assert ledgers.rows("SELECT * FROM recall_lease") == []
    acked = Counter(line.split()[1] for line in log.read_text().splitlines() if line.startswith("acked "))
    assert set(acked.values()) == {1}
    # What a killed process had acknowledged without writing it down is consumed all the same.
    assert EPISODES - killed * CALLERS <= len(acked) <= EPISODES
    versions = ledgers.rows("SELECT DISTINCT version FROM document")
    assert versions == [{"version": 2}], "consumed once: one version after the first"


def lines(log: Path, kind: str) -> int:
    return sum(line.startswith(kind) for line in log.read_text().splitlines()) if log.exists() else 0
