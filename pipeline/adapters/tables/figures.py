"""What was done and who does it: for status and /metrics."""

from __future__ import annotations

from sqlalchemy import REAL, BigInteger, Column, Index, Integer, SmallInteger, String, Table, Text, text

from pipeline.adapters.tables.columns import id_column, int_column, metadata, time_column

# What drains did, appended once a group: rates and totals for status and /metrics; old rows are folded away.
embed_log = Table(
    "embed_log",
    metadata,
    id_column(),
    time_column("at", nullable=False, default=True),
    Column("generation", Integer, nullable=False),
    Column("lane", SmallInteger, nullable=False),
    Column("passages", Integer, nullable=False),
    Column("copied", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("seconds", REAL, nullable=False),
    Index("ix_embed_log_at", "at"),
)

# One row a flip in the serving generation: upload to searchable, in seconds.
flip_log = Table(
    "flip_log",
    metadata,
    id_column(),
    time_column("at", nullable=False, default=True),
    Column("lane", SmallInteger, nullable=False),
    Column("seconds", REAL, nullable=False),
    Index("ix_flip_log_at", "at"),
)

# What each worker process says of itself, for /metrics. Never read by the pipeline.
worker_state = Table(
    "worker_state",
    metadata,
    Column("host", Text, primary_key=True),
    Column("pid", Integer, primary_key=True, autoincrement=False),
    Column("purpose", String(16), primary_key=True),
    time_column("open_until"),
    int_column("failures"),
    time_column("succeeded_at"),
    time_column("seen_at", nullable=False, default=True),
)

counter = Table(
    "counter",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False, server_default=text("0")),
)
