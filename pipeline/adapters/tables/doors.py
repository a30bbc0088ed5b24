"""What the API's doors keep: keys, answers already given, and what its processes poll."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.adapters.tables.columns import id_column, metadata, texts_column, time_column

api_key = Table(
    "api_key",
    metadata,
    id_column(),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("prefix", String(12), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    texts_column("scopes"),
    time_column("created_at", nullable=False, default=True),
    time_column("revoked_at"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("status", Integer),
    Column("response", JSONB),
    time_column("at", nullable=False, default=True),
    Index("ix_idempotency_at", "at"),
)

# Bumped in the transaction that changes what L0 or the map would say; API processes poll it.
change_counter = Table(
    "change_counter",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", String(16), primary_key=True),
    Column("value", BigInteger, nullable=False, server_default=text("0")),
)
