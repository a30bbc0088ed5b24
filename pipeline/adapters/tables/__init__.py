"""Every table and index; the only place columns are named. Migrations are checked against it.

Permanent state is small: documents, their versions, one ``embedding`` row per generation and
document. Work rows (``prepare_job``, ``passage``, ``describe_job``, ``vector_trash``, ``domain_change``)
exist only while there is work. Every scan that repeats has a partial index.
"""

from __future__ import annotations

from pipeline.adapters.tables.columns import metadata
from pipeline.adapters.tables.documents import document, document_version
from pipeline.adapters.tables.domains import domain_change, knowledge_domain
from pipeline.adapters.tables.doors import api_key, change_counter, idempotency
from pipeline.adapters.tables.embeddings import embedding, generation, passage, vector_trash
from pipeline.adapters.tables.figures import counter, embed_log, flip_log, worker_state
from pipeline.adapters.tables.llm import llm_endpoint, llm_memo, llm_usage, llm_window
from pipeline.adapters.tables.lookups import calibration, feedback, recall_lease, tool_invocation
from pipeline.adapters.tables.work import claim, describe_job, job, prepare_job

__all__ = [
    "api_key",
    "calibration",
    "change_counter",
    "claim",
    "counter",
    "describe_job",
    "document",
    "document_version",
    "domain_change",
    "embed_log",
    "embedding",
    "feedback",
    "flip_log",
    "generation",
    "idempotency",
    "job",
    "knowledge_domain",
    "llm_endpoint",
    "llm_memo",
    "llm_usage",
    "llm_window",
    "metadata",
    "passage",
    "prepare_job",
    "recall_lease",
    "tool_invocation",
    "vector_trash",
    "worker_state",
]
