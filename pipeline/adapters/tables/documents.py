"""Documents and their versions: with ``embedding``, all that is kept for good."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.adapters.tables.columns import id_column, int_column, metadata, text_column, texts_column, time_column

document = Table(
    "document",
    metadata,
    id_column(),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    text_column("domain", "default"),
    int_column("version"),
    Column("deleted_version", Integer),
    Column("consumed_version", Integer),
    text_column("title"),
    texts_column("keywords"),
    text_column("summary"),
    texts_column("covers"),
    texts_column("given_covers"),
    text_column("when_to_retrieve"),
    text_column("given_when_to_retrieve"),
    text_column("source"),
    Column("revision", BigInteger),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    text_column("meta_hash"),
    Column("writer", String(16)),
    Column("described_version", Integer),
    Column("summary_fingerprint", Text),
    time_column("used_at"),
    time_column("created_at", nullable=False, default=True),
    time_column("updated_at", nullable=False, default=True),
    UniqueConstraint("tenant", "key"),
    Index("ix_document_tenant_domain", "tenant", "domain", "id"),
    Index("ix_document_updated_at", "updated_at"),
    # Few values, each with many documents: which of those that are alive were described by an older prompt or model?
    Index(
        "ix_document_summary_fingerprint",
        "summary_fingerprint",
        postgresql_where=text("deleted_version IS DISTINCT FROM version"),
    ),
)
document.append_constraint(CheckConstraint("kind IN ('article', 'episode')", name="kind"))

document_version = Table(
    "document_version",
    metadata,
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("text_hash", String(64), nullable=False),
    text_column("title"),
    Column("body", Text),
    Column("events", JSONB),
    Column("lane", SmallInteger, nullable=False),
    time_column("created_at", nullable=False, default=True),
    # Numbers and ids that recall finds to the letter; the function comes with migration 0003.
    Index(
        "ix_document_version_strings",
        text("episode_strings(events)"),
        postgresql_using="gin",
        postgresql_where=text("events IS NOT NULL"),
    ),
)
