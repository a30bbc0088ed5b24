"""The composition root: settings in, live parts out. Everything is built lazily, once per process."""

from __future__ import annotations

import importlib
import threading
from functools import cached_property

from sqlalchemy import Engine

from pipeline.action_memory import ActionMemory, Bounds, DomainLimit
from pipeline.adapters.ledger.calibrations import CalibrationLedger
from pipeline.adapters.ledger.connection import make_engine
from pipeline.adapters.ledger.documents import DocumentLedger
from pipeline.adapters.ledger.drops import DropLedger
from pipeline.adapters.ledger.feedback import FeedbackLedger
from pipeline.adapters.ledger.generations import GenerationLedger
from pipeline.adapters.ledger.housekeeping import HousekeepingLedger
from pipeline.adapters.ledger.idempotency import IdempotencyLedger
from pipeline.adapters.ledger.invocations import InvocationLedger, InvocationWriter
from pipeline.adapters.ledger.jobs import JobLedger
from pipeline.adapters.ledger.keys import KeyLedger
from pipeline.adapters.ledger.lookups import LookupLedger
from pipeline.adapters.ledger.parking import ParkingLedger
from pipeline.adapters.ledger.passages import PassageLedger
from pipeline.adapters.ledger.preparing import PrepareLedger
from pipeline.adapters.ledger.progress import ProgressLedger
from pipeline.adapters.ledger.reconciling import ReconcileLedger
from pipeline.adapters.ledger.reports import ReportLedger
from pipeline.adapters.ledger.status import StatusLedger
from pipeline.adapters.ledger.swaps import SwapLedger
from pipeline.adapters.ledger.sweeping import SweepLedger
from pipeline.adapters.ledger.worker_state import WorkerStateLedger
from pipeline.breaker import Breaker
from pipeline.calibrate import Calibrate, CalibrationLimits
from pipeline.embed import Drain, DrainLimits
from pipeline.encoders import Encoders
from pipeline.errors import PipelineError
from pipeline.fingerprint import Space
from pipeline.generation import SCHEMA_VERSION, Generation, Status
from pipeline.llm_wiring import LlmParts
from pipeline.lookup import Lookup, LookupLimits, LookupParts
from pipeline.ports import Embedder, Tokenizer, VectorStore
from pipeline.prepare import PrepareLimits
from pipeline.query_vectors import QueryVectors
from pipeline.recall import Recall, RecallParts
from pipeline.recall_wiring import recall_parts
from pipeline.relevance import Thresholds
from pipeline.rules import rule_name
from pipeline.session_memory import SessionMemory
from pipeline.settings import Settings
from pipeline.swapping import SwapLimits
from pipeline.sweep import SweepLimits
from pipeline.validation import Limits


class Parts:
    """One process's parts. Nothing connects or loads before it is used, so a fork or spawn is safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._encoders = Encoders(self._load)
        self._lookups: dict[str, Lookup] = {}
        self._lock = threading.Lock()

    @cached_property
    def engine(self) -> Engine:
        return make_engine(self.settings.database_url, self.settings.database_pool)

    @cached_property
    def documents(self) -> DocumentLedger:
        return DocumentLedger(self.engine)

    @cached_property
    def preparing(self) -> PrepareLedger:
        return PrepareLedger(self.engine)

    @cached_property
    def passages(self) -> PassageLedger:
        return PassageLedger(self.engine)

    @cached_property
    def generations(self) -> GenerationLedger:
        return GenerationLedger(self.engine)

    @cached_property
    def sweeping(self) -> SweepLedger:
        return SweepLedger(self.engine)

    @cached_property
    def jobs(self) -> JobLedger:
        return JobLedger(self.engine)

    @cached_property
    def keys(self) -> KeyLedger:
        return KeyLedger(self.engine)

    @cached_property
    def idempotency(self) -> IdempotencyLedger:
        return IdempotencyLedger(self.engine)

    @cached_property
    def llm(self) -> LlmParts:
        """The parts of the LLM queue and of the knowledge map."""
        return LlmParts(self.settings, lambda: self.engine)

    @cached_property
    def status(self) -> StatusLedger:
        return StatusLedger(self.engine)

    @cached_property
    def worker_states(self) -> WorkerStateLedger:
        return WorkerStateLedger(self.engine)

    @cached_property
    def reconciling(self) -> ReconcileLedger:
        return ReconcileLedger(self.engine)

    @cached_property
    def parking(self) -> ParkingLedger:
        return ParkingLedger(self.engine)

    @cached_property
    def invocations(self) -> InvocationWriter:
        return InvocationWriter(InvocationLedger(self.engine))

    @cached_property
    def query_vectors(self) -> QueryVectors:
        return QueryVectors(self.embedder_for)

    @cached_property
    def _lookup_parts(self) -> LookupParts:
        s = self.settings
        thresholds = Thresholds(
            max_l2=s.max_l2_distance,
            highly_relevant=s.highly_relevant_threshold,
            reference=s.reference_threshold,
        )
        limits = LookupLimits(
            thresholds=thresholds,
            content_tokens=s.content_tokens,
            flip_grace_seconds=s.flip_grace_seconds,
            max_query_chars=s.max_query_chars,
            identity=s.identity_calibration,
        )
        ledger = LookupLedger(self.engine)
        return LookupParts(
            ledger=ledger,
            names=ledger,
            vectors=self.vectors,
            queries=self.query_vectors,
            memory=SessionMemory(self.memory, DomainLimit(s.domain_limit)),
            invocations=self.invocations,
            limits=limits,
        )

    def lookup(self, tenant: str) -> Lookup:
        """The lookups of one tenant; kept, because its lexicon is loaded once."""
        with self._lock:
            if tenant not in self._lookups:
                self._lookups[tenant] = Lookup(tenant, self._lookup_parts)
            return self._lookups[tenant]

    @cached_property
    def calibrations(self) -> CalibrationLedger:
        return CalibrationLedger(self.engine)

    @cached_property
    def feedback(self) -> FeedbackLedger:
        return FeedbackLedger(self.engine)

    @cached_property
    def reports(self) -> ReportLedger:
        return ReportLedger(self.engine)

    @property
    def calibration_limits(self) -> CalibrationLimits:
        s = self.settings
        thresholds = Thresholds(
            max_l2=s.max_l2_distance, highly_relevant=s.highly_relevant_threshold, reference=s.reference_threshold
        )
        return CalibrationLimits(content_tokens=s.content_tokens, thresholds=thresholds)

    @cached_property
    def calibrate(self) -> Calibrate:
        """Fits the relevance of generations that are due."""
        return Calibrate(
            jobs=self.jobs,
            calibrations=self.calibrations,
            texts=LookupLedger(self.engine),
            store=self.vectors,
            embedder_for=self.embedder_for,
            limits=self.calibration_limits,
        )

    def calibrations_due(self) -> bool:
        """Waits a generation for its map? Asks the ledger, and starts the jobs that are due."""
        if self.settings.identity_calibration:
            return False
        limits = self.calibration_limits
        return bool(self.calibrations.want_due(limits.documents, limits.feedback))

    def calibrated(self, generation: Generation) -> bool:
        """May this generation serve: has it a map of its own, or too few documents for one?"""
        if self.settings.identity_calibration:
            return True
        return self.calibrations.calibrated(generation, self.calibration_limits.documents)

    @cached_property
    def _recall_parts(self) -> RecallParts:
        return recall_parts(self.settings, self.engine, self.vectors, self.query_vectors, self.invocations)

    def recall(self, tenant: str) -> Recall:
        """The recalls of one tenant."""
        return Recall(tenant, self._recall_parts)

    @cached_property
    def housekeeping(self) -> HousekeepingLedger:
        return HousekeepingLedger(self.engine)

    @cached_property
    def swaps(self) -> SwapLedger:
        return SwapLedger(self.engine)

    @cached_property
    def progress(self) -> ProgressLedger:
        return ProgressLedger(self.engine)

    @cached_property
    def drops(self) -> DropLedger:
        return DropLedger(self.engine)

    @cached_property
    def vectors(self) -> VectorStore:
        from pipeline.adapters.milvus import MilvusVectors

        return MilvusVectors(self.settings.milvus_uri, self.settings.milvus_token.get_secret_value())

    @cached_property
    def memory(self) -> ActionMemory:
        from pipeline.adapters.action_memory import RedisActionMemory

        s = self.settings
        bounds = Bounds(ttl=s.session_ttl_seconds)
        return RedisActionMemory(s.memory_url, bounds=bounds, timeout=s.memory_timeout_seconds)

    @cached_property
    def limits(self) -> Limits:
        return Limits.from_settings(self.settings)

    @cached_property
    def embedder(self) -> Embedder:
        """The configured one: what new vectors are made with."""
        settings = self.settings
        return make_embedder(settings, settings.embedder, settings.embed_model, settings.embed_dimension)

    def embedder_for(self, space: Space) -> Embedder | None:
        """The encoder of a space, loaded as its generation says; None when this process cannot produce it."""
        return self._encoders.of(space)

    def tokenizer_for(self, space: Space) -> Tokenizer | None:
        """The tokenizer of a space; None when this process cannot produce it."""
        embedder = self.embedder_for(space)
        return None if embedder is None else embedder.tokenizer

    def _load(self, space: Space) -> Embedder | None:
        if self.embedder.space.name == space.name:
            return self.embedder
        try:
            loaded = make_embedder(self.settings, space.embedder, space.model, space.dimension)
        except (PipelineError, OSError, ImportError, ValueError):
            return None
        return loaded if loaded.space.name == space.name else None

    @property
    def rule(self) -> str:
        """The text rule this code writes with."""
        return rule_name(self.settings.passage_tokens)

    def ensure_generation(self, *, force: bool = False) -> Generation | None:
        """The generation of this process's fingerprint, with its collection; None when it was seen and dropped."""
        generation = self.generations.ensure(
            self.embedder.space, self.rule, SCHEMA_VERSION, self.settings.milvus_prefix, force=force
        )
        # The collection of one that is on its way out must not come back.
        if generation is not None and generation.status is not Status.RETIRING:
            self.vectors.create(generation.spec)
        return generation

    def drain(self, breaker: Breaker) -> Drain:
        """A drain loop over this process's encoders."""
        s = self.settings
        limits = DrainLimits(
            batch_tokens=s.batch_tokens,
            claim_seconds=s.claim_seconds,
            claim_longest_seconds=s.claim_longest_seconds,
            flip_grace_seconds=s.flip_grace_seconds,
            retry_base_seconds=s.retry_base_seconds,
            max_errors=s.max_errors,
        )
        return Drain(self.passages, self.passages, self.vectors, self.embedder_for, breaker, limits)

    @property
    def prepare_limits(self) -> PrepareLimits:
        s = self.settings
        return PrepareLimits(
            claim_seconds=s.claim_seconds,
            claim_longest_seconds=s.claim_longest_seconds,
            retry_base_seconds=s.retry_base_seconds,
            max_errors=s.max_errors,
        )

    @property
    def swap_limits(self) -> SwapLimits:
        s = self.settings
        return SwapLimits(min_self_retrieval=s.min_self_retrieval)

    @property
    def sweep_limits(self) -> SweepLimits:
        s = self.settings
        return SweepLimits(
            max_lapses=s.max_lapses,
            tick_seconds=s.sweep_seconds / 2,
            claim_longest_seconds=s.claim_longest_seconds,
            flip_grace_seconds=s.flip_grace_seconds,
            pending_cap=s.pending_cap,
        )


def make_embedder(settings: Settings, kind: str, model: str, dimension: int | None) -> Embedder:
    """Loads an encoder by kind and model; imports its library only here."""
    if kind == "onnx":
        from pipeline.adapters.onnx import OnnxEmbedder

        path = settings.data_dir / "models" / model
        return OnnxEmbedder(path, dimension=dimension, threads=settings.embed_threads)
    if kind == "flagembedding":
        from pipeline.adapters.flagembedding import FlagEmbeddingEmbedder

        return FlagEmbeddingEmbedder(model, dimension=dimension)
    if ":" in kind:
        # An encoder of the installation's own: a class that fulfils the Embedder port.
        module, _, name = kind.partition(":")
        own: Embedder = getattr(importlib.import_module(module), name)(model, dimension=dimension)
        return own
    raise PipelineError(f"WELLHEAD_EMBEDDER is {kind!r}; it must be 'onnx', 'flagembedding' or 'module:Class'")


def build(settings: Settings | None = None) -> Parts:
    """The parts for these settings, or for those of the environment."""
    return Parts(settings or Settings())
