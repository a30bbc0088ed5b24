"""Generations, how far each document is embedded in them, its passages, and keys on their way out."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Identity,
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

from pipeline.adapters.tables.columns import id_column, int_column, metadata, texts_column, time_column, work_columns

generation = Table(
    "generation",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("space", JSONB, nullable=False),
    Column("rule", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("collection", Text, nullable=False, unique=True),
    Column("status", String(10), nullable=False),
    Column("held", Text),
    Column("recall_check", JSONB),
    # The last comparison with the vector store that was made for a swap.
    Column("compared", JSONB),
    Column("calibration", BigInteger),
    Column("closing", Boolean, nullable=False, server_default=text("false")),
    time_column("emptied_at"),
    time_column("created_at", nullable=False, default=True),
    time_column("serving_at"),
    time_column("draining_at"),
    time_column("retired_at"),
    Index("uq_generation_fingerprint_alive", "fingerprint", unique=True, postgresql_where=text("status <> 'dropped'")),
    Index("uq_generation_serving", "status", unique=True, postgresql_where=text("status = 'serving'")),
)

embedding = Table(
    "embedding",
    metadata,
    Column("generation", Integer, primary_key=True),
    Column("document", BigInteger, primary_key=True),
    Column("target_version", Integer),
    Column("live_version", Integer),
    Column("live_total", Integer),
    Column("prev_version", Integer),
    Column("prev_total", Integer),
    time_column("flipped_at"),
    int_column("total"),
    int_column("done"),
    int_column("parked"),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("live_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("lane", SmallInteger, nullable=False, server_default=text("0")),
    time_column("requested_at"),
    Index(
        "ix_embedding_unflipped",
        "generation",
        "document",
        postgresql_where=text("live_version IS DISTINCT FROM target_version"),
    ),
    # Documents that whoever prepared them could not cut for this generation, or that wait for a repair.
    Index("ix_embedding_untargeted", "generation", "document", postgresql_where=text("target_version IS NULL")),
    Index("ix_embedding_parked", "generation", "document", postgresql_where=text("parked > 0")),
    postgresql_partition_by="LIST (generation)",
)

passage = Table(
    "passage",
    metadata,
    id_column(),
    Column("generation", Integer, nullable=False),
    Column("document", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    texts_column("headings"),
    Column("tokens", Integer, nullable=False),
    *work_columns(),
    UniqueConstraint("generation", "document", "version", "ordinal"),
    Index(
        "ix_passage_pending",
        "generation",
        "lane",
        "tenant",
        "not_before",
        "id",
        postgresql_where=text("state = 'pending' AND cohort IS NULL"),
    ),
    Index(
        "ix_passage_cohort",
        "generation",
        "cohort",
        "not_before",
        postgresql_where=text("state = 'pending' AND cohort IS NOT NULL"),
    ),
    Index("ix_passage_claimed", "token", postgresql_where=text("state = 'claimed'")),
    Index("ix_passage_parked", "tenant", "id", postgresql_where=text("state = 'parked'")),
)

vector_trash = Table(
    "vector_trash",
    metadata,
    id_column(),
    Column("generation", Integer, nullable=False),
    Column("document", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    time_column("due", nullable=False),
    Column("passes", SmallInteger, nullable=False, server_default=text("0")),
    Index("ix_vector_trash_due", "due"),
)
