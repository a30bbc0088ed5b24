"""Work rows of the other stages, the claims that hold them, and long jobs."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Identity, Index, Integer, String, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.adapters.tables.columns import id_column, metadata, time_column, work_columns

prepare_job = Table(
    "prepare_job",
    metadata,
    id_column(),
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), nullable=False, unique=True),
    *work_columns(),
    Index("ix_prepare_job_pending", "lane", "tenant", "not_before", "id", postgresql_where=text("state = 'pending'")),
    Index("ix_prepare_job_claimed", "token", postgresql_where=text("state = 'claimed'")),
)

describe_job = Table(
    "describe_job",
    metadata,
    id_column(),
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    *work_columns(),
    Index("ix_describe_job_pending", "lane", "tenant", "not_before", "id", postgresql_where=text("state = 'pending'")),
    Index("ix_describe_job_claimed", "token", postgresql_where=text("state = 'claimed'")),
)

# A worker's hold on a group of work rows. One row a group: a heartbeat updates one row, not hundreds.
claim = Table(
    "claim",
    metadata,
    Column("token", BigInteger, Identity(), primary_key=True),
    Column("queue", String(16), nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    time_column("claimed_at", nullable=False, default=True),
    time_column("deadline", nullable=False),
    time_column("latest", nullable=False),
    Index("ix_claim_deadline", "deadline"),
)

job = Table(
    "job",
    metadata,
    Column("name", Text, primary_key=True),
    Column("token", BigInteger),
    time_column("deadline"),
    time_column("not_before", nullable=False, default=True),
    Column("cursor", BigInteger, nullable=False, server_default=text("0")),
    Column("state", JSONB, nullable=False, server_default=text("'{}'")),
    Column("last_error", Text),
    time_column("created_at", nullable=False, default=True),
    time_column("finished_at"),
)
