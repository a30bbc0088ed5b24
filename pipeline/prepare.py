"""Prepare: the newest version of a document becomes passages, for every generation that needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.documents import Lane, VersionText
from pipeline.encode import reason
from pipeline.errors import InfrastructureDown
from pipeline.fingerprint import Space
from pipeline.generation import Generation
from pipeline.heartbeat import kept
from pipeline.ports import Tokenizer
from pipeline.rules import known_rule, passages_of
from pipeline.work import ClaimedDocument, Prepared


class Preparing(Protocol):
    """The prepare jobs of the ledger."""

    def claim_documents(
        self, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> list[ClaimedDocument]: ...
    def claim_suspects(self, seconds: float, longest: float) -> list[ClaimedDocument]: ...
    def extend(self, token: int, seconds: float) -> bool: ...
    def store_prepared(self, claimed: ClaimedDocument, prepared: Sequence[Prepared]) -> bool: ...
    def fail_document(self, claimed: ClaimedDocument, error: str, delay: float, max_errors: int) -> None: ...
    def finish_claim(self, token: int) -> None: ...
    def release(self, table: str, token: int, delay: float = 0.0) -> None: ...


class ActiveGenerations(Protocol):
    """Which generations want passages."""

    def active(self) -> list[Generation]: ...


@dataclass(frozen=True, kw_only=True)
class PrepareLimits:
    """Claim sizes and failure bounds, in documents and seconds."""

    documents: int = 16
    # Smaller, because whoever waits in the live lane waits for the end of a claim.
    backfill_documents: int = 4
    claim_seconds: float = 120.0
    claim_longest_seconds: float = 900.0
    retry_base_seconds: float = 5.0
    max_errors: int = 5


def prepare(
    jobs: Preparing,
    generations: ActiveGenerations,
    tokenizer_for: Callable[[Space], Tokenizer | None],
    limits: PrepareLimits,
    more_time: Callable[[], bool],
) -> int:
    """Works off prepare jobs, live lane first, while ``more_time()``; returns how many documents were prepared."""
    prepared = 0
    turn = 0
    after = {Lane.LIVE: "", Lane.BACKFILL: ""}
    while more_time():
        # One claim in eight starts with the backfill lane, so that a steady stream of uploads cannot starve it.
        order = (Lane.BACKFILL, Lane.LIVE) if turn % 8 == 7 else (Lane.LIVE, Lane.BACKFILL)
        claimed: list[ClaimedDocument] = []
        for lane in order:
            size = limits.documents if lane is Lane.LIVE else limits.backfill_documents
            claimed = jobs.claim_documents(lane, size, limits.claim_seconds, limits.claim_longest_seconds, after[lane])
            if claimed:
                after[lane] = max(c.tenant for c in claimed)
                break
        # What a lost worker held comes by itself: one in eight, and when there is nothing else.
        if not claimed or turn % 8 == 3:
            suspects = jobs.claim_suspects(limits.claim_seconds, limits.claim_longest_seconds)
            prepared += _prepare_claimed(jobs, generations, tokenizer_for, limits, suspects) if suspects else 0
            if not claimed and not suspects:
                return prepared
        turn += 1
        if not claimed:
            continue
        prepared += _prepare_claimed(jobs, generations, tokenizer_for, limits, claimed)
    return prepared


def _prepare_claimed(
    jobs: Preparing,
    generations: ActiveGenerations,
    tokenizer_for: Callable[[Space], Tokenizer | None],
    limits: PrepareLimits,
    claimed: Sequence[ClaimedDocument],
) -> int:
    token = claimed[0].token
    done = 0
    try:
        with kept(jobs, token, limits.claim_seconds):
            active = generations.active()
            for document in claimed:
                try:
                    done += jobs.store_prepared(document, _passages(document, active, tokenizer_for))
                except InfrastructureDown:
                    raise
                except Exception as error:  # the document's own fault, or ours with it: it fails alone
                    jobs.fail_document(document, reason(error), limits.retry_base_seconds, limits.max_errors)
    except InfrastructureDown:
        jobs.release("prepare_job", token)
        raise
    jobs.finish_claim(token)
    return done


def _passages(
    document: ClaimedDocument,
    active: Sequence[Generation],
    tokenizer_for: Callable[[Space], Tokenizer | None],
) -> list[Prepared]:
    prepared = []
    for generation in active:
        tokenizer = tokenizer_for(generation.space)
        # Another process may know this generation's model or rule: old and new code run side by side in a roll-out.
        passages = None
        if tokenizer is not None and known_rule(generation.rule):
            passages = passages_of(generation.rule, _text(document), tokenizer)
        prepared.append(Prepared(generation=generation.id, passages=passages))
    return prepared


def _text(document: ClaimedDocument) -> VersionText:
    return document.text or VersionText(title="", body="")
