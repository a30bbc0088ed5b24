"""Tool calls, what was said of them, the maps fitted from that, and episodes handed out."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.adapters.tables.columns import id_column, int_column, metadata, time_column

tool_invocation = Table(
    "tool_invocation",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("session_id", Text),
    Column("tool_name", String(32), nullable=False),
    Column("query", Text, nullable=False),
    Column("relevance_level", String(20)),
    Column("dedup_reason", String(32)),
    Column("retrieval_details", JSONB, nullable=False, server_default=text("'{}'")),
    Column("generation", Integer),
    Column("calibration", BigInteger),
    Column("latency_ms", JSONB, nullable=False, server_default=text("'{}'")),
    time_column("at", nullable=False, default=True),
    Index("ix_tool_invocation_tenant_at", "tenant", "at"),
    Index("ix_tool_invocation_session", "tenant", "session_id"),
)

feedback = Table(
    "feedback",
    metadata,
    id_column(),
    Column("tenant", Text, nullable=False),
    Column("invocation_id", String(36), nullable=False),
    Column("relevant", Boolean, nullable=False),
    Column("key", Text),
    Column("features", JSONB),
    Column("generation", Integer),
    time_column("at", nullable=False, default=True),
    Index("ix_feedback_generation", "generation"),
)

calibration = Table(
    "calibration",
    metadata,
    id_column(),
    Column("generation", Integer),
    Column("kind", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("model", JSONB, nullable=False),
    Column("figures", JSONB, nullable=False, server_default=text("'{}'")),
    int_column("documents"),
    time_column("created_at", nullable=False, default=True),
    Index("ix_calibration_generation", "generation"),
)

recall_lease = Table(
    "recall_lease",
    metadata,
    Column("lease", String(36), primary_key=True),
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("session_id", Text),
    time_column("deadline", nullable=False),
    time_column("created_at", nullable=False, default=True),
    UniqueConstraint("document"),
    Index("ix_recall_lease_deadline", "deadline"),
)
