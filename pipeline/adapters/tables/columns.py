"""The one ``MetaData`` of all tables, and the columns that many of them share."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Text,
    text,
)
from sqlalchemy.sql.elements import TextClause

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _now() -> TextClause:
    """The database's wall clock; ``now()`` would be the transaction's start."""
    return text("clock_timestamp()")


def time_column(name: str, *, nullable: bool = True, default: bool = False) -> Column[Any]:
    """A moment with its time zone; ``default``: the moment the row is inserted."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=_now() if default else None)


def id_column() -> Column[int]:
    """The primary key ``id``, counted up by the database."""
    return Column("id", BigInteger, Identity(), primary_key=True)


def texts_column(name: str) -> Column[Any]:
    """A list of texts, empty unless given."""
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'"))


def text_column(name: str, default: str = "") -> Column[str]:
    """A text that is never NULL."""
    return Column(name, Text, nullable=False, server_default=text(f"'{default}'"))


def int_column(name: str, default: int = 0) -> Column[Any]:
    """An integer that is never NULL."""
    return Column(name, Integer, nullable=False, server_default=text(str(default)))


def work_columns() -> list[Column[Any]]:
    """What every claimable row carries. ``token`` names the claim that holds it."""
    return [
        Column("lane", SmallInteger, nullable=False),
        Column("tenant", Text, nullable=False),
        Column("state", String(8), nullable=False, server_default=text("'pending'")),
        time_column("not_before", nullable=False, default=True),
        Column("token", BigInteger),
        int_column("errors"),
        int_column("lapses"),
        time_column("lapsed_at"),
        Column("cohort", BigInteger),
        Column("last_error", Text),
    ]
