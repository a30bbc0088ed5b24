"""One engine per process, one short transaction per call: no other module commits."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pipeline.errors import InfrastructureDown

# Prepare holds it shared, whoever adds or swaps a generation holds it exclusively.
GENERATIONS_LOCK = 7_305_801
# Held while somebody picks the documents that may be what kills workers.
SUSPECTS_LOCK = 7_305_802
# A connection used within this time is taken for alive: a lookup would else ask twice whether the server is there.
TRUSTED_SECONDS = 1.0


def make_engine(url: str, pool_size: int = 10) -> Engine:
    """Lazy: no socket before the first query. A forgotten transaction is ended by the server."""
    engine = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=10,
        connect_args={
            "connect_timeout": 5,
            "options": "-c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000 -c lock_timeout=30000",
        },
    )
    sa.event.listen(engine, "checkin", _note_time)
    sa.event.listen(engine, "checkout", partial(_check_alive, engine.dialect))
    return engine


def _note_time(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _check_alive(dialect: sa.Dialect, connection: Any, record: Any, _proxy: Any) -> None:
    """Has the pool replace a connection that was lost while it lay idle. Its ``pool_pre_ping`` asks every time."""
    if time.monotonic() - record.info.get("used", math.inf) < TRUSTED_SECONDS:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError(str(error)) from error


class Ledger:
    """The base of every ledger: an engine and the one way to run a transaction on it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Commits on leaving, rolls back on an exception; a lost server becomes InfrastructureDown."""
        with _translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Each statement by itself: a lookup reads in one round trip where a transaction takes three."""
        with _translated(), self._reads.connect() as connection:
            yield connection


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise InfrastructureDown(f"PostgreSQL: {_first_line(error)}", part="postgresql") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise InfrastructureDown(f"PostgreSQL: {_first_line(error)}", part="postgresql") from error
        raise


@lru_cache(maxsize=1024)
def _statement(sql: str) -> sa.TextClause:
    # Finding its parameters takes longer than many a statement.
    return sa.text(sql)


def rows(connection: Connection, sql: str, **values: Any) -> list[dict[str, Any]]:
    """The result of one statement as a list of dicts."""
    result = connection.execute(_statement(sql), values)
    names = tuple(result.keys())
    return [dict(zip(names, row, strict=True)) for row in result.all()]


def one(connection: Connection, sql: str, **values: Any) -> dict[str, Any] | None:
    """The first row of the result, or None."""
    row = connection.execute(_statement(sql), values).mappings().first()
    return None if row is None else dict(row)


def run(connection: Connection, sql: str, **values: Any) -> int:
    """Runs a statement and says how many rows it touched."""
    return int(connection.execute(_statement(sql), values).rowcount)


def run_many(connection: Connection, sql: str, values: list[Mapping[str, Any]]) -> None:
    """Runs a statement once per set of values."""
    if values:
        connection.execute(_statement(sql), values)


def scalar(connection: Connection, sql: str, **values: Any) -> Any:
    """The first column of the first row, or None."""
    return connection.execute(_statement(sql), values).scalar()


def count_event(connection: Connection, name: str, amount: int = 1) -> None:
    """Adds to a counter that /metrics shows."""
    if amount:
        run(
            connection,
            "INSERT INTO counter (name, value) VALUES (:name, :amount)"
            " ON CONFLICT (name) DO UPDATE SET value = counter.value + excluded.value",
            name=name,
            amount=amount,
        )


def bump(connection: Connection, tenant: str, name: str) -> None:
    """Tells the API processes that what they cache under ``name`` (l0, map) has changed."""
    run(
        connection,
        "INSERT INTO change_counter (tenant, name, value) VALUES (:tenant, :name, 1)"
        " ON CONFLICT (tenant, name) DO UPDATE SET value = change_counter.value + 1",
        tenant=tenant,
        name=name,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
