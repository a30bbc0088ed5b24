"""Real PostgreSQL and Valkey for the whole test run, started once; a fresh database for every test.

``WELLHEAD_TEST_DATABASE_URL``, ``_BROKER_URL`` and ``_MEMORY_URL`` name running servers to use instead;
they are emptied. Milvus Lite comes from ``tests.plugins.milvus_server``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

from ops.stack import Stack, StackError, migrate
from pipeline.settings import Settings

STARTED_HERE = ("database_url", "broker_url", "memory_url")


def unavailable(reason: str) -> None:
    """A service that cannot be had fails the test in CI and skips it elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def stack_services() -> Iterator[Stack]:
    """PostgreSQL (no fsync) and two Valkeys. ``stack.url("broker_url")``; ``stack.children`` to stop or kill one."""
    given = {name: os.environ.get(f"WELLHEAD_TEST_{name.upper()}", "") for name in STARTED_HERE}
    # Not under pytest's own directory: PostgreSQL's account has to reach it when the tests run as root.
    directory = Path(tempfile.mkdtemp(prefix="wellhead-test-"))
    stack = Stack(Settings.model_validate({"data_dir": directory, **given}), durable=False, only=STARTED_HERE)
    try:
        stack.start()
    except StackError as error:
        shutil.rmtree(directory)
        unavailable(f"{error} {error.detail}")
    yield stack
    stack.stop()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def killable_services() -> Iterator[Stack]:
    """PostgreSQL, two Valkeys and Milvus Lite apart from those of ``stack_services``: tests may kill every one."""
    # Not under pytest's own directory: PostgreSQL's account has to reach it when the tests run as root.
    directory = Path(tempfile.mkdtemp(prefix="wellhead-faults-"))
    stack = Stack(Settings.model_validate({"data_dir": directory}), durable=False)
    try:
        stack.start()
        yield stack
    except StackError as error:
        unavailable(f"{error} {error.detail}")
    finally:
        stack.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def template_database(stack_services: Stack) -> Iterator[str]:
    """The name of a migrated, empty database that the others are copies of."""
    name = f"template_{uuid.uuid4().hex}"
    admin = stack_services.url("database_url")
    _administer(admin, "CREATE DATABASE {}", name)
    migrate(database_at(admin, name))
    yield name
    _administer(admin, "DROP DATABASE {} WITH (FORCE)", name)


@pytest.fixture
def empty_database_url(stack_services: Stack) -> Iterator[str]:
    """A fresh database without a schema: for the tests of the migrations."""
    yield from _database(stack_services.url("database_url"), "template0")


@pytest.fixture
def database_url(stack_services: Stack, template_database: str) -> Iterator[str]:
    """A fresh database with the newest schema, dropped after the test."""
    yield from _database(stack_services.url("database_url"), template_database)


@pytest.fixture
def broker_url(stack_services: Stack) -> str:
    """The broker's Valkey, emptied."""
    return _emptied(stack_services.url("broker_url"))


@pytest.fixture
def memory_url(stack_services: Stack) -> str:
    """Action memory's Valkey, emptied."""
    return _emptied(stack_services.url("memory_url"))


def database_at(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return f"{url.rpartition('/')[0]}/{name}"


def _database(admin: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    _administer(admin, "CREATE DATABASE {} TEMPLATE {}", name, template)
    yield database_at(admin, name)
    _administer(admin, "DROP DATABASE {} WITH (FORCE)", name)


def _administer(url: str, statement: Any, *names: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _emptied(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url
