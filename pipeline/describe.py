"""Describe: what each new version covers and when to retrieve it. No transaction is open while a writer writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.asking import Budget
from pipeline.breaker import Breaker
from pipeline.documents import Kind, Lane, VersionText
from pipeline.extractive import ExtractiveWriter
from pipeline.llm import LlmBusy, LlmDown, LlmMalformed, LlmRejected
from pipeline.writing import Described, DocumentText, Writer


@dataclass(frozen=True, kw_only=True)
class ClaimedDescription:
    """One describe job under a claim: the newest version and what its uploader said of it."""

    job: int
    token: int
    document: int
    tenant: str
    version: int
    kind: Kind
    title: str
    summary: str
    keywords: tuple[str, ...]
    given_covers: tuple[str, ...]
    given_when_to_retrieve: str
    text: VersionText

    @property
    def to_write(self) -> DocumentText:
        """The writer's input."""
        return DocumentText(
            tenant=self.tenant,
            title=self.title,
            body=self.text.body_text,
            summary=self.summary,
            keywords=self.keywords,
            given_covers=self.given_covers,
        )


@dataclass(frozen=True, kw_only=True)
class Written:
    """A description and its origin: ``writer`` is ``given``, ``llm`` or ``extractive``."""

    described: Described
    writer: str
    fingerprint: str


class Describing(Protocol):
    """What describing asks the ledger; each method is one transaction."""

    def claim_descriptions(
        self, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> Sequence[ClaimedDescription]: ...
    def store_description(self, claimed: ClaimedDescription, written: Written) -> bool: ...
    def fail_description(
        self,
        claimed: ClaimedDescription,
        error: str,
        delay: float,
        max_errors: int,
        fallback: Written,
        *,
        outage: bool = False,
    ) -> None: ...
    def release_descriptions(self, token: int, delay: float = 0.0) -> None: ...


@dataclass(frozen=True, kw_only=True)
class DescribeLimits:
    """Bounds; times in seconds. ``call_seconds``: the total timeout of one call, of which a job may need two."""

    call_seconds: float = 60.0
    claim_longest_seconds: float = 900.0
    retry_base_seconds: float = 5.0
    max_errors: int = 5
    batch: int = 20

    @property
    def claim_seconds(self) -> float:
        """Two calls and what lies around them, so that no heartbeat is needed."""
        return 2 * self.call_seconds + 60.0


@dataclass(frozen=True, kw_only=True)
class Describer:
    """The describe stage of one worker."""

    jobs: Describing
    writer: Writer
    budget: Budget
    breaker: Breaker
    limits: DescribeLimits

    def run(self, more_time: Callable[[], bool]) -> int:
        """Describes until nothing is left, the time is up, or the endpoint wants a pause; returns how many."""
        done, after, turn = 0, "", 0
        if self.writer.calls_llm and (self.breaker.open or self.budget.wait() > 0):
            return 0
        while more_time():
            # Live first, but every eighth turn the backfill, so that a stream of uploads cannot starve it.
            lanes = (Lane.BACKFILL, Lane.LIVE) if turn % 8 == 7 else (Lane.LIVE, Lane.BACKFILL)
            claimed = self._claim(lanes[0], after) or self._claim(lanes[1], after)
            if not claimed:
                break
            after, turn = claimed[-1].tenant, turn + 1
            for each in claimed:
                if not self._one(each):
                    return done
                done += 1
        return done

    def _claim(self, lane: Lane, after: str) -> Sequence[ClaimedDescription]:
        # A model takes a second for each: one at a time. The extractive writer takes a millisecond.
        limit = 1 if self.writer.calls_llm else self.limits.batch
        return self.jobs.claim_descriptions(
            lane, limit, self.limits.claim_seconds, self.limits.claim_longest_seconds, after
        )

    def _one(self, claimed: ClaimedDescription) -> bool:
        """False when the run has to stop: the endpoint is busy or down."""
        try:
            written = self._write(claimed)
        except LlmBusy as error:
            self.jobs.release_descriptions(claimed.token, error.retry_after)
            return False
        except LlmDown as error:
            self.breaker.failed()
            self._failed(claimed, error, outage=True)
            return False
        except (LlmMalformed, LlmRejected) as error:
            self._failed(claimed, error)
            return True
        if written.writer == "llm":
            self.breaker.succeeded()
        self.jobs.store_description(claimed, written)
        return True

    def _write(self, claimed: ClaimedDescription) -> Written:
        fingerprint = self.writer.fingerprint
        if claimed.given_covers and claimed.given_when_to_retrieve:
            given = Described(covers=claimed.given_covers, when_to_retrieve=claimed.given_when_to_retrieve)
            return Written(described=given, writer="given", fingerprint=fingerprint)
        if claimed.kind is Kind.EPISODE or not claimed.text.body_text.strip():
            # Episodes are recalled, not planned for: no map shows what they cover, so no call is spent on them.
            return self._extracted(claimed)
        described = self.writer.describe(claimed.to_write)
        return Written(described=described, writer=self.writer.name, fingerprint=fingerprint)

    def _extracted(self, claimed: ClaimedDescription) -> Written:
        described = ExtractiveWriter().describe(claimed.to_write)
        return Written(described=described, writer=ExtractiveWriter.name, fingerprint=self.writer.fingerprint)

    def _failed(self, claimed: ClaimedDescription, error: Exception, *, outage: bool = False) -> None:
        """Counts; a document given up is described by its own words, and its job stays visible as parked."""
        self.jobs.fail_description(
            claimed,
            f"{type(error).__name__}: {error}",
            self.limits.retry_base_seconds,
            self.limits.max_errors,
            self._extracted(claimed),
            outage=outage,
        )
