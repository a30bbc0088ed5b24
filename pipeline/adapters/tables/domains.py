"""The knowledge map's domains and the changes that wait to be summarised."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, DateTime, Index, String, Table, Text, UniqueConstraint, text

from pipeline.adapters.tables.columns import id_column, int_column, metadata, time_column

knowledge_domain = Table(
    "knowledge_domain",
    metadata,
    id_column(),
    Column("tenant", Text, nullable=False),
    Column("domain_id", String(64), nullable=False),
    Column("description", String(256)),
    Column("when_to_retrieve", Text),
    int_column("document_count"),
    Column("input_hash", String(64)),
    Column("writer", String(16)),
    Column("prompt_version", Text),
    Column("summary_fingerprint", Text),
    Column("included_change", BigInteger, nullable=False, server_default=text("0")),
    # The newest change that document_count and the map already show, with or without a new summary.
    Column("counted_change", BigInteger, nullable=False, server_default=text("0")),
    # When the last few LLM calls for this domain were made.
    Column("called_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    time_column("dirty_since"),
    time_column("last_change_at"),
    time_column("used_at"),
    time_column("not_before", nullable=False, default=True),
    Column("token", BigInteger),
    int_column("errors"),
    Column("last_error", Text),
    time_column("updated_at"),
    time_column("created_at", nullable=False, default=True),
    UniqueConstraint("tenant", "domain_id"),
    Index("ix_knowledge_domain_dirty", "dirty_since", postgresql_where=text("dirty_since IS NOT NULL")),
)

domain_change = Table(
    "domain_change",
    metadata,
    id_column(),
    Column("tenant", Text, nullable=False),
    Column("domain_id", String(64), nullable=False),
    Column("document", BigInteger),
    time_column("at", nullable=False, default=True),
    Index("ix_domain_change_domain", "tenant", "domain_id", "id"),
)
