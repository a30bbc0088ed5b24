"""What LLM calls answered, used and may still use."""

from __future__ import annotations

from sqlalchemy import REAL, BigInteger, Column, Date, DateTime, Index, String, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.adapters.tables.columns import int_column, metadata, time_column

llm_memo = Table(
    "llm_memo",
    metadata,
    Column("input_hash", String(64), primary_key=True),
    Column("output", JSONB, nullable=False),
    time_column("at", nullable=False, default=True),
    Index("ix_llm_memo_at", "at"),
)

llm_usage = Table(
    "llm_usage",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("purpose", String(16), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("calls", BigInteger, nullable=False, server_default=text("0")),
    Column("tokens_in", BigInteger, nullable=False, server_default=text("0")),
    Column("tokens_out", BigInteger, nullable=False, server_default=text("0")),
    Column("cost", REAL, nullable=False, server_default=text("0")),
)

# Calls and tokens of all workers together, by minute: what the hourly and daily budgets are checked against.
llm_window = Table(
    "llm_window",
    metadata,
    Column("minute", DateTime(timezone=True), primary_key=True),
    int_column("calls"),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    int_column("refreshes"),
)

# What all workers know of the LLM endpoint: until when it asked us to wait, and when it last answered well.
llm_endpoint = Table(
    "llm_endpoint",
    metadata,
    Column("name", Text, primary_key=True),
    time_column("paused_until"),
    Column("reason", Text),
    time_column("succeeded_at"),
)
