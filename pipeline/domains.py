"""Domains: one summary per changed domain, after a pause, from what its documents say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.asking import Budget
from pipeline.breaker import Breaker
from pipeline.extractive import ExtractiveWriter
from pipeline.fingerprint import digest
from pipeline.llm import LlmBusy, LlmDown, LlmMalformed, LlmRejected
from pipeline.prompts import with_rule
from pipeline.sampling import DomainDocument
from pipeline.writing import DomainTexts, Summary, Writer

# A summary is made from at most this many documents' texts; which ones, is decided by a hash of their ids.
READ_DOCUMENTS = 5000


@dataclass(frozen=True, kw_only=True)
class ClaimedDomain:
    """A due domain under a claim. ``changes``: the ids of the changes that the summary will include."""

    id: int
    token: int
    tenant: str
    domain_id: str
    changes: tuple[int, ...]
    input_hash: str | None
    described: bool
    errors: int


@dataclass(frozen=True, kw_only=True)
class DomainRecord:
    """A summary as it is stored; ``called``: the model was asked for it."""

    summary: Summary
    document_count: int
    input_hash: str
    writer: str
    fingerprint: str
    called: bool


class Domains(Protocol):
    """What the refresh asks the ledger; each method is one transaction."""

    def claim_domain(self, pace: DomainPace, seconds: float) -> ClaimedDomain | None: ...
    def domain_documents(self, claimed: ClaimedDomain, limit: int) -> tuple[Sequence[DomainDocument], int]: ...
    def store_domain(self, claimed: ClaimedDomain, record: DomainRecord | None, pace: DomainPace) -> bool: ...
    def release_domain(self, claimed: ClaimedDomain, delay: float, error: str, *, counted: bool) -> None: ...


class Housekeeping(Protocol):
    """What every tick puts in order, with or without a model."""

    def settle(self) -> None: ...
    def mark_stale(self, fingerprint: str, extractive: str, per_hour: int) -> int: ...


@dataclass(frozen=True, kw_only=True)
class DomainPace:
    """Seconds: due = min(last change + ``quiet``, first change + ``wait``), at most ``calls`` calls per ``wait``."""

    quiet: float = 10.0
    wait: float = 300.0
    calls: int = 3


@dataclass(frozen=True, kw_only=True)
class DomainLimits:
    """Bounds; times in seconds."""

    pace: DomainPace
    call_seconds: float = 60.0
    retry_base_seconds: float = 5.0
    max_errors: int = 5


@dataclass(frozen=True, kw_only=True)
class DomainRefresher:
    """The domain stage of one worker."""

    domains: Domains
    writer: Writer
    budget: Budget
    breaker: Breaker
    limits: DomainLimits

    def run(self, more_time: Callable[[], bool]) -> int:
        """Summarises due domains until none is left, the time is up, or the endpoint wants a pause."""
        done = 0
        if self.writer.calls_llm and (self.breaker.open or self.budget.wait() > 0):
            return 0
        while more_time():
            claimed = self.domains.claim_domain(self.limits.pace, 2 * self.limits.call_seconds + 60.0)
            if claimed is None or not self._one(claimed):
                break
            done += 1
        return done

    def _one(self, claimed: ClaimedDomain) -> bool:
        """False when the run has to stop: the endpoint is busy or down."""
        documents, total = self.domains.domain_documents(claimed, READ_DOCUMENTS)
        texts = DomainTexts(tenant=claimed.tenant, domain_id=claimed.domain_id, documents=tuple(documents), total=total)
        try:
            record = self._write(claimed, texts)
        except LlmBusy as error:
            self.domains.release_domain(claimed, error.retry_after, str(error), counted=False)
            return False
        except LlmDown as error:
            self.breaker.failed()
            self.domains.release_domain(claimed, self.limits.retry_base_seconds, _said(error), counted=False)
            return False
        except (LlmMalformed, LlmRejected) as error:
            if claimed.errors + 1 < self.limits.max_errors:
                delay = min(3600.0, self.limits.retry_base_seconds * 2.0**claimed.errors)
                self.domains.release_domain(claimed, delay, _said(error), counted=True)
                return True
            # Given up until the next change: the documents' own words are better than a domain that says nothing.
            record = self._record(texts, ExtractiveWriter(), self.writer.fingerprint, called=True)
        else:
            if record is not None and record.called:
                self.breaker.succeeded()
        self.domains.store_domain(claimed, record, self.limits.pace)
        return True

    def _write(self, claimed: ClaimedDomain, texts: DomainTexts) -> DomainRecord | None:
        """The new record; None when the documents say what the stored one was made from."""
        if not texts.documents:
            return None
        if claimed.described and _hash(self.writer, texts) == claimed.input_hash:
            return None
        return self._record(texts, self.writer, self.writer.fingerprint, called=self.writer.calls_llm)

    def _record(self, texts: DomainTexts, writer: Writer, fingerprint: str, *, called: bool) -> DomainRecord:
        summary = writer.summarise(texts)
        language = texts.language
        ruled = Summary(description=summary.description, when_to_retrieve=with_rule(summary.when_to_retrieve, language))
        return DomainRecord(
            summary=ruled,
            document_count=texts.total,
            input_hash=_hash(self.writer, texts),
            writer=writer.name,
            fingerprint=fingerprint,
            called=called,
        )


def _hash(writer: Writer, texts: DomainTexts) -> str:
    return digest(writer.fingerprint, writer.domain_data(texts))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
