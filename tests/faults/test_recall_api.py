"""Fifty HTTP callers take two hundred episodes out while the API is killed: one holder at a time, none lost."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import Self

import httpx
import pytest

from pipeline.documents import Block, Event, Lane, Upload
from pipeline.receive import receive_many
from tests.faults.harness import ROUNDS

EPISODES, CALLERS, LEASE_SECONDS = 200, 50, 10.0


class Callers:
    """Threads that recall with ``consume`` and acknowledge; what they were told is kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stop = threading.Event()
        self.guard = threading.Lock()
        self.held: dict[str, list[tuple[datetime, str, datetime]]] = defaultdict(list)
        self.acknowledged: dict[str, int] = defaultdict(int)
        self.threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number: int) -> None:
        choice = random.Random(number)
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stop.is_set():
                try:
                    self._turn(client, choice.randrange(EPISODES))
                except httpx.HTTPError:
                    time.sleep(0.1)  # the server is away; what it leased to us lapses

    def _turn(self, client: httpx.Client, episode: int) -> None:
        asked = {"query": f"the pump of house{episode} leaks", "top_k": 1, "consume": True}
        answer = client.post("/v1/recall", json=asked)
        if answer.status_code != 200 or answer.json()["lease"] is None:
            time.sleep(0.1)
            return
        lease = answer.json()["lease"]
        deadline = datetime.fromisoformat(lease["deadline"])
        with self.guard:
            self.held[lease["keys"][0]].append((datetime.now(deadline.tzinfo), lease["lease"], deadline))
        if client.post(f"/v1/recall/{lease['lease']}/ack").status_code == 200:
            with self.guard:
                self.acknowledged[lease["keys"][0]] += 1


@pytest.mark.faults_long
@pytest.mark.timeout(600)
def test_every_episode_has_one_holder_at_a_time_though_the_api_is_killed(make_fleet):
    fleet = make_fleet(recall_lease_seconds=LEASE_SECONDS)
    fleet.start_all()
    uploads = [episode(number) for number in range(EPISODES)]
    assert all(r.changed for r in receive_many(fleet.parts.documents, "default", uploads, Lane.LIVE))
    fleet.settle()
    consumed = "SELECT count(*) AS n FROM document WHERE kind = 'episode' AND consumed_version IS NOT NULL"
    with Callers(fleet.start_api()) as callers:
        for kill in range(1, min(ROUNDS, 4) + 1):
            fleet.wait("episodes are consumed", lambda kill=kill: fleet.one(consumed) >= EPISODES * kill // 5)
            fleet.kill("api")
            fleet.start_api()
        fleet.wait("all are consumed", lambda: fleet.one(consumed) == EPISODES)
    assert fleet.one("SELECT count(*) AS n FROM recall_lease") == 0
    assert set(callers.acknowledged.values()) == {1}
    # Those whose acknowledgement was cut off by a kill are consumed, too, but nobody was told.
    assert EPISODES - CALLERS * ROUNDS <= len(callers.acknowledged) <= EPISODES
    for times in callers.held.values():
        for (_, _, deadline), (again, _, _) in zip(sorted(times), sorted(times)[1:], strict=False):
            assert again > deadline, "handed out again before the lease had lapsed"


def episode(number: int) -> Upload:
    said = Block(type="text", text=f"the pump of house{number} leaks oil")
    return Upload(key=f"e{number}", events=(Event(at=datetime(2026, 1, 2, tzinfo=UTC), source="ann", blocks=(said,)),))
