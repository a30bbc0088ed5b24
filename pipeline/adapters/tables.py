"""Every table and index; the only place columns are named. Migrations are checked against it.

Permanent state is small: documents, their versions, one ``embedding`` row per generation and
document. Work rows (``prepare_job``, ``passage``, ``describe_job``, ``vector_trash``, ``domain_change``)
exist only while there is work. Every scan that repeats has a partial index.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
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


def _at(name: str, *, nullable: bool = True, default: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=_now() if default else None)


def _id() -> Column[int]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _texts(name: str) -> Column[Any]:
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'"))


def _text(name: str, default: str = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=text(f"'{default}'"))


def _int(name: str, default: int = 0) -> Column[Any]:
    return Column(name, Integer, nullable=False, server_default=text(str(default)))


def _work() -> list[Column[Any]]:
    """What every claimable row carries. ``token`` names the claim that holds it."""
    return [
        Column("lane", SmallInteger, nullable=False),
        Column("tenant", Text, nullable=False),
        Column("state", String(8), nullable=False, server_default=text("'pending'")),
        _at("not_before", nullable=False, default=True),
        Column("token", BigInteger),
        _int("errors"),
        _int("lapses"),
        _at("lapsed_at"),
        Column("cohort", BigInteger),
        Column("last_error", Text),
    ]


document = Table(
    "document",
    metadata,
    _id(),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    _text("domain", "default"),
    _int("version"),
    Column("deleted_version", Integer),
    Column("consumed_version", Integer),
    _text("title"),
    _texts("keywords"),
    _text("summary"),
    _texts("covers"),
    _texts("given_covers"),
    _text("when_to_retrieve"),
    _text("given_when_to_retrieve"),
    _text("source"),
    Column("revision", BigInteger),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    _text("meta_hash"),
    Column("writer", String(16)),
    Column("described_version", Integer),
    Column("summary_fingerprint", Text),
    _at("used_at"),
    _at("created_at", nullable=False, default=True),
    _at("updated_at", nullable=False, default=True),
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
    _text("title"),
    Column("body", Text),
    Column("events", JSONB),
    Column("lane", SmallInteger, nullable=False),
    _at("created_at", nullable=False, default=True),
    # Numbers and ids that recall finds to the letter; the function comes with migration 0003.
    Index(
        "ix_document_version_strings",
        text("episode_strings(events)"),
        postgresql_using="gin",
        postgresql_where=text("events IS NOT NULL"),
    ),
)

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
    _at("emptied_at"),
    _at("created_at", nullable=False, default=True),
    _at("serving_at"),
    _at("draining_at"),
    _at("retired_at"),
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
    _at("flipped_at"),
    _int("total"),
    _int("done"),
    _int("parked"),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("live_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("lane", SmallInteger, nullable=False, server_default=text("0")),
    _at("requested_at"),
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
    _id(),
    Column("generation", Integer, nullable=False),
    Column("document", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    _texts("headings"),
    Column("tokens", Integer, nullable=False),
    *_work(),
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

prepare_job = Table(
    "prepare_job",
    metadata,
    _id(),
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), nullable=False, unique=True),
    *_work(),
    Index("ix_prepare_job_pending", "lane", "tenant", "not_before", "id", postgresql_where=text("state = 'pending'")),
    Index("ix_prepare_job_claimed", "token", postgresql_where=text("state = 'claimed'")),
)

describe_job = Table(
    "describe_job",
    metadata,
    _id(),
    Column("document", BigInteger, ForeignKey("document.id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    *_work(),
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
    _at("claimed_at", nullable=False, default=True),
    _at("deadline", nullable=False),
    _at("latest", nullable=False),
    Index("ix_claim_deadline", "deadline"),
)

vector_trash = Table(
    "vector_trash",
    metadata,
    _id(),
    Column("generation", Integer, nullable=False),
    Column("document", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    _at("due", nullable=False),
    Column("passes", SmallInteger, nullable=False, server_default=text("0")),
    Index("ix_vector_trash_due", "due"),
)

job = Table(
    "job",
    metadata,
    Column("name", Text, primary_key=True),
    Column("token", BigInteger),
    _at("deadline"),
    _at("not_before", nullable=False, default=True),
    Column("cursor", BigInteger, nullable=False, server_default=text("0")),
    Column("state", JSONB, nullable=False, server_default=text("'{}'")),
    Column("last_error", Text),
    _at("created_at", nullable=False, default=True),
    _at("finished_at"),
)

# What drains did, appended once a group: rates and totals for status and /metrics; old rows are folded away.
embed_log = Table(
    "embed_log",
    metadata,
    _id(),
    _at("at", nullable=False, default=True),
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
    _id(),
    _at("at", nullable=False, default=True),
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
    _at("open_until"),
    _int("failures"),
    _at("succeeded_at"),
    _at("seen_at", nullable=False, default=True),
)

counter = Table(
    "counter",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False, server_default=text("0")),
)

knowledge_domain = Table(
    "knowledge_domain",
    metadata,
    _id(),
    Column("tenant", Text, nullable=False),
    Column("domain_id", String(64), nullable=False),
    Column("description", String(256)),
    Column("when_to_retrieve", Text),
    _int("document_count"),
    Column("input_hash", String(64)),
    Column("writer", String(16)),
    Column("prompt_version", Text),
    Column("summary_fingerprint", Text),
    Column("included_change", BigInteger, nullable=False, server_default=text("0")),
    # The newest change that document_count and the map already show, with or without a new summary.
    Column("counted_change", BigInteger, nullable=False, server_default=text("0")),
    # When the last few LLM calls for this domain were made.
    Column("called_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default=text("'{}'")),
    _at("dirty_since"),
    _at("last_change_at"),
    _at("used_at"),
    _at("not_before", nullable=False, default=True),
    Column("token", BigInteger),
    _int("errors"),
    Column("last_error", Text),
    _at("updated_at"),
    _at("created_at", nullable=False, default=True),
    UniqueConstraint("tenant", "domain_id"),
    Index("ix_knowledge_domain_dirty", "dirty_since", postgresql_where=text("dirty_since IS NOT NULL")),
)

domain_change = Table(
    "domain_change",
    metadata,
    _id(),
    Column("tenant", Text, nullable=False),
    Column("domain_id", String(64), nullable=False),
    Column("document", BigInteger),
    _at("at", nullable=False, default=True),
    Index("ix_domain_change_domain", "tenant", "domain_id", "id"),
)

llm_memo = Table(
    "llm_memo",
    metadata,
    Column("input_hash", String(64), primary_key=True),
    Column("output", JSONB, nullable=False),
    _at("at", nullable=False, default=True),
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
    _int("calls"),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    _int("refreshes"),
)

# What all workers know of the LLM endpoint: until when it asked us to wait, and when it last answered well.
llm_endpoint = Table(
    "llm_endpoint",
    metadata,
    Column("name", Text, primary_key=True),
    _at("paused_until"),
    Column("reason", Text),
    _at("succeeded_at"),
)

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
    _at("at", nullable=False, default=True),
    Index("ix_tool_invocation_tenant_at", "tenant", "at"),
    Index("ix_tool_invocation_session", "tenant", "session_id"),
)

feedback = Table(
    "feedback",
    metadata,
    _id(),
    Column("tenant", Text, nullable=False),
    Column("invocation_id", String(36), nullable=False),
    Column("relevant", Boolean, nullable=False),
    Column("key", Text),
    Column("features", JSONB),
    Column("generation", Integer),
    _at("at", nullable=False, default=True),
    Index("ix_feedback_generation", "generation"),
)

calibration = Table(
    "calibration",
    metadata,
    _id(),
    Column("generation", Integer),
    Column("kind", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("model", JSONB, nullable=False),
    Column("figures", JSONB, nullable=False, server_default=text("'{}'")),
    _int("documents"),
    _at("created_at", nullable=False, default=True),
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
    _at("deadline", nullable=False),
    _at("created_at", nullable=False, default=True),
    UniqueConstraint("document"),
    Index("ix_recall_lease_deadline", "deadline"),
)

api_key = Table(
    "api_key",
    metadata,
    _id(),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("prefix", String(12), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    _texts("scopes"),
    _at("created_at", nullable=False, default=True),
    _at("revoked_at"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("status", Integer),
    Column("response", JSONB),
    _at("at", nullable=False, default=True),
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
