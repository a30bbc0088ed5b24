"""Action memory on a real Valkey: the contract, many processes at once, flushes, and a server that stands still."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import redis

from ops.services import Valkey, free_ports
from pipeline.action_memory import Bounds, Session, Status
from pipeline.adapters.action_memory import RedisActionMemory
from pipeline.errors import InfrastructureDown
from tests.contracts_memory import SESSION, ActionMemoryContract, ask, keys, offer, selection

PATIENT = 5.0


class TestRedis(ActionMemoryContract):
    @pytest.fixture
    def memory(self, memory_url):
        # A machine under load must not turn into an unavailable memory here; bounded waiting has its own tests.
        return RedisActionMemory(memory_url, timeout=PATIENT)


@pytest.fixture
def memory(memory_url):
    return RedisActionMemory(memory_url, timeout=PATIENT)


@pytest.fixture
def client(memory_url):
    with redis.Redis.from_url(memory_url) as client:
        yield client


@pytest.fixture
def own_server(tmp_path: Path):
    """A Valkey of this test alone, to be stopped and killed."""
    service = Valkey(directory=tmp_path / "valkey", port=free_ports(1)[0], setting="memory_url")
    process = subprocess.Popen(service.command().argv, stdout=subprocess.DEVNULL, cwd=tmp_path)
    while not service.ready():
        assert process.poll() is None
        time.sleep(0.02)
    yield service.url, process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


def _lookups(url: str, start, count: int, offset: int, results) -> None:
    memory = RedisActionMemory(url, timeout=PATIENT)
    handed: list[tuple[str, tuple[int, ...] | None]] = []
    lock = threading.Lock()

    def one(number: int) -> None:
        start.wait()
        # Every lookup finds the same eight documents in another order; some find passages instead of whole texts.
        order = [(number + step) % 8 for step in range(8)]
        found = [offer(f"d{n}", (number % 3, 3) if n % 2 else None) for n in order]
        marked = ask(memory, *found)
        with lock:
            handed.extend((h.key, h.passages) for h in marked.handed)

    threads = [threading.Thread(target=one, args=(offset + n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(handed)


def test_two_hundred_lookups_at_once_never_hand_out_one_document_twice(memory_url):
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    workers = [
        context.Process(target=_lookups, args=(memory_url, start, 50, 50 * number, results)) for number in range(4)
    ]
    for worker in workers:
        worker.start()
    start.set()
    handed = [pair for _ in workers for pair in results.get(timeout=120)]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    shown = Counter(
        (key, passage) for key, passages in handed for passage in ([None] if passages is None else passages)
    )
    assert {key for key, _ in shown} == {f"d{n}" for n in range(8)}
    assert set(shown.values()) == {1}


def test_every_key_of_a_session_lives_a_day_from_the_last_lookup(memory, client):
    begun = memory.begin(SESSION, "r")
    memory.mark_retrieved(SESSION, selection(offer("a")), begun)
    memory.finish(SESSION, begun, "answer")
    names = {key.rpartition(b"}:")[2]: key for key in client.keys()}
    assert set(names) == {b"documents", b"domains", b"questions", b"requests", b"request:r"}
    request = names.pop(b"request:r")
    assert 590_000 < client.pttl(request) <= 600_000
    for key in names.values():
        client.pexpire(key, 5_000)
    memory.begin(SESSION)
    lives = {client.pexpiretime(key) for key in names.values()}
    assert len(lives) == 1
    assert all(86_390_000 < client.pttl(key) <= 86_400_000 for key in names.values())
    for key in names.values():
        client.pexpire(key, 5_000)
    memory.mark_retrieved(SESSION, selection(offer("a")), memory.begin(Session(tenant="x", session_id="x")))
    assert all(client.pttl(key) > 86_390_000 for key in names.values())


def test_reading_a_session_does_not_prolong_it(memory, client):
    ask(memory, offer("a"))
    for key in client.keys():
        client.pexpire(key, 5_000)
    memory.records().view(SESSION)
    memory.records().is_doc_retrieved(SESSION, "a")
    assert all(client.pttl(key) <= 5_000 for key in client.keys())


def test_a_session_names_its_tenant_and_itself_in_every_key(memory, client):
    ask(memory, offer("a"), session=Session(tenant="ten:ant", session_id="s{1}"), request="r")
    assert {key.rpartition(b":{")[2].partition(b"}")[0] for key in client.keys()} == {b"ten%3Aant:s%7B1%7D"}


def test_what_is_remembered_is_bounded(memory_url, client):
    memory = RedisActionMemory(memory_url, bounds=Bounds(documents=20, passages=5, domains=3), timeout=PATIENT)
    for number in range(50):
        ask(memory, offer(f"d{number:02}", tuple(range(8)), domain=f"domain{number}"))
        ask(memory, domain=f"empty{number}")
    view = memory.records().view(SESSION)
    assert 18 <= len(view.documents) <= 20
    assert view.documents[-1].key == "d49"
    assert view.documents[-1].passages == (3, 4, 5, 6, 7)
    domains = next(key for key in client.keys() if key.endswith(b":domains"))
    assert client.hlen(domains) <= 9


def test_a_flush_in_mid_session_forgets_and_goes_on(memory, client):
    ask(memory, offer("a"))
    begun = memory.begin(SESSION, "r")
    client.flushall()
    client.script_flush()
    marked = memory.mark_retrieved(SESSION, selection(offer("a")), begun)
    assert marked.status is Status.OK
    assert keys(marked) == ["a"]
    assert memory.finish(SESSION, begun, "answer") is Status.OK
    assert ask(memory, offer("a")).handed == ()


def test_a_dead_owner_holds_a_request_for_one_lease(memory_url):
    memory = RedisActionMemory(memory_url, bounds=Bounds(lease=0.2), timeout=PATIENT)
    dead = memory.begin(SESSION, "r")
    memory.mark_retrieved(SESSION, selection(offer("a")), dead)
    heir = memory.begin(SESSION, "r")
    assert heir.owner not in {"", dead.owner}
    assert keys(memory.mark_retrieved(SESSION, selection(offer("a")), heir)) == ["a"]
    memory.finish(SESSION, dead, "late")
    assert memory.finish(SESSION, heir, "answer") is Status.OK
    assert memory.begin(SESSION, "r").answer == "answer"


def test_a_server_that_stands_still_is_flagged_and_asked_once_a_pause(own_server, monkeypatch):
    url, process = own_server
    memory = RedisActionMemory(url)
    asked: list[str] = []
    run = memory._connection._scripts["BEGIN"]
    monkeypatch.setitem(
        memory._connection._scripts, "BEGIN", lambda **arguments: (asked.append("BEGIN"), run(**arguments))[1]
    )
    memory._connection._gate._clock = lambda: 100.0
    memory.finish(SESSION, memory.begin(SESSION, "warm"), None)
    asked.clear()
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(200):
        begun = memory.begin(SESSION, "r")
        assert begun.status is Status.UNAVAILABLE
        marked = memory.mark_retrieved(SESSION, selection(offer("a"), offer("b")), begun)
        assert (marked.status, keys(marked)) == (Status.UNAVAILABLE, ["a", "b"])
        assert memory.finish(SESSION, begun, "answer") is Status.UNAVAILABLE
        assert memory.seen(SESSION) == ()
    assert len(asked) == 1
    with pytest.raises(InfrastructureDown):
        memory.records().view(SESSION)
    memory._connection._gate._clock = lambda: 101.0
    assert memory.begin(SESSION).status is Status.UNAVAILABLE
    assert len(asked) == 2
    os.kill(process.pid, signal.SIGCONT)
    memory._connection._gate._clock = lambda: 102.0
    assert memory.begin(SESSION).status is Status.OK


def test_a_call_to_a_frozen_server_has_a_timeout_at_every_step(memory_url):
    memory = RedisActionMemory(memory_url)
    settings = memory._connection.client.connection_pool.connection_kwargs
    assert settings["socket_timeout"] == settings["socket_connect_timeout"] == 0.05
    assert settings["retry"]._retries == 0


def test_a_server_that_dies_between_the_steps_leaves_an_answer(own_server):
    url, process = own_server
    memory = RedisActionMemory(url)
    begun = memory.begin(SESSION, "r")
    assert begun.status is Status.OK
    process.kill()
    process.wait()
    marked = memory.mark_retrieved(SESSION, selection(offer("a")), begun)
    assert (marked.status, keys(marked)) == (Status.UNAVAILABLE, ["a"])
    assert memory.finish(SESSION, begun, "answer") is Status.UNAVAILABLE
    with pytest.raises(InfrastructureDown):
        memory.records().clear_session(SESSION)
