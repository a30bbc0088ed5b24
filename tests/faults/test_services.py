"""The servers underneath are killed, emptied, frozen and started again."""

from __future__ import annotations

import signal
import time

import pytest

from ops.services import MilvusLite, Valkey
from pipeline.errors import InfrastructureDown
from tests.faults.harness import text
from tests.faults.invariant import check

from .test_workers import busy


def valkey_ready(fleet):
    url = fleet.services.url("broker_url")
    return Valkey(
        directory=fleet.services.data_dir, port=int(url.split(":")[-1].split("/")[0]), setting="broker_url"
    ).ready()


def milvus_ready(fleet):
    url = fleet.services.url("milvus_uri")
    return MilvusLite(directory=fleet.services.data_dir, port=int(url.rsplit(":", 1)[1])).ready()


def test_a_broker_that_is_killed_and_started_again(fleet):
    fleet.load(20)
    busy(fleet)
    fleet.services.children["valkey-broker"].kill()
    fleet.put("while-down", text(700, 2), ring=False)
    fleet.services.children["valkey-broker"].start()
    fleet.ready("valkey-broker", lambda: valkey_ready(fleet))
    report = check(fleet, "Valkey SIGKILL and restart", recovery=fleet.settle())
    assert report.parked == 0


def test_a_broker_that_is_emptied(fleet):
    fleet.load(20)
    busy(fleet)
    fleet.redis().flushall()
    fleet.put("after", text(701, 2), ring=False)
    report = check(fleet, "FLUSHALL", recovery=fleet.settle())
    assert report.parked == 0


@pytest.mark.faults_long
def test_a_broker_that_is_frozen_for_twenty_seconds(fleet):
    fleet.load(20)
    busy(fleet)
    broker = fleet.services.children["valkey-broker"]
    fleet.services.children["valkey-broker"]
    import os

    os.kill(broker.pid, signal.SIGSTOP)
    try:
        until = time.monotonic() + 20
        count = 0
        while time.monotonic() < until:
            fleet.put(f"frozen{count}", text(800 + count, 1), ring=False)
            count += 1
            time.sleep(0.5)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    report = check(fleet, "Valkey SIGSTOP 20 s", recovery=fleet.settle())
    assert count > 1 and report.parked == 0


def test_a_database_that_is_killed_and_started_again(fleet):
    fleet.load(20)
    busy(fleet)
    postgres = fleet.services.children["postgres"]
    postgres.kill()
    with pytest.raises(InfrastructureDown):
        fleet.parts.documents.view("default", "ready")
    postgres.start()
    fleet.wait("the database answers", lambda: fleet.one("SELECT 1 AS n"))
    report = check(fleet, "PostgreSQL SIGKILL and restart", recovery=fleet.settle())
    assert report.parked == 0


def test_milvus_is_killed_and_started_again(fleet):
    fleet.load(20)
    busy(fleet)
    fleet.services.children["milvus"].kill()
    fleet.put("while-down", text(702, 2))
    time.sleep(3)
    errors = fleet.one("SELECT coalesce(max(errors), 0) AS n FROM passage")
    fleet.services.children["milvus"].start()
    fleet.ready("milvus", lambda: milvus_ready(fleet))
    report = check(fleet, "Milvus SIGKILL and restart", recovery=fleet.settle())
    assert errors == 0, "an outage is nobody's error"
    assert report.parked == 0


def test_a_collection_that_is_dropped_is_filled_again(fleet):
    fleet.load(15)
    fleet.settle()
    (generation,) = fleet.parts.generations.active()
    fleet.parts.vectors.admin().drop(generation.collection)
    recovery = fleet.wait("the loss is noticed", lambda: fleet.counter("collections_lost") == 1, 60)
    recovery += fleet.settle()
    report = check(fleet, "collection dropped", recovery=recovery)
    assert report.parked == 0
    assert not fleet.sql("SELECT 1 FROM generation WHERE emptied_at IS NOT NULL")


@pytest.mark.faults_long
def test_a_collection_that_is_dropped_in_the_middle_of_a_backfill(fleet):
    fleet.load(15)
    fleet.settle()
    fleet.load(15, start=100)
    busy(fleet)
    for i in range(5):
        fleet.put(f"d{i}", text(i, 8))
    (generation,) = fleet.parts.generations.active()
    fleet.parts.vectors.admin().drop(generation.collection)
    fleet.wait("the loss is noticed", lambda: fleet.counter("collections_lost") == 1, 60)
    report = check(fleet, "collection dropped under load", recovery=fleet.settle())
    assert report.parked == 0
