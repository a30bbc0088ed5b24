"""Drain: claimed passages are encoded, written, read back, and their versions made live.

While batch n is encoded, group n+1 is claimed and tokenised and group n−1 is written, each in a thread of
its own. The lanes are read again before every batch, so somebody who waits waits for one batch at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from pipeline.breaker import Breaker
from pipeline.documents import Lane
from pipeline.encode import encode_batch, encoder_answers
from pipeline.errors import CollectionGone, InfrastructureDown
from pipeline.fingerprint import Space
from pipeline.generation import Generation
from pipeline.loads import LiveVectors, Load, tokenize
from pipeline.packing import pack, slots
from pipeline.ports import Embedder, VectorStore
from pipeline.storing import confirm, upsert
from pipeline.work import ClaimedPassage, Complete, Group, GroupFigures

# While a write is waited for, this often somebody is looked for who waits.
LOOK_SECONDS = 0.1
# Live groups at one look, at most: uploads that never stop must not starve the backfill.
LIVE_GROUPS = 7


class Passages(Protocol):
    """Claiming and finishing passages."""

    def claim_passages(
        self, generation: int, lane: Lane, limit: int, seconds: float, longest: float, after: str = ""
    ) -> Group | None: ...
    def claim_suspects(self, generation: int, seconds: float, longest: float) -> Group | None: ...
    def suspects_waiting(self, generations: Sequence[int]) -> bool: ...
    def live_waiting(self, generations: Sequence[int]) -> bool: ...
    def finish(self, group: Group, passages: Sequence[ClaimedPassage], figures: GroupFigures) -> list[Complete]: ...
    def flip(self, complete: Complete, missing: Sequence[int], grace: float) -> bool: ...
    def fail_passage(
        self, group: Group, passage: ClaimedPassage, error: str, delay: float, max_errors: int
    ) -> bool: ...


class Holds(Protocol):
    """Keeping and giving back a claim."""

    def extend(self, token: int, seconds: float) -> bool: ...
    def release(self, table: str, token: int, delay: float = 0.0) -> None: ...
    def finish_claim(self, token: int) -> None: ...
    def note_probe(self, generation: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class DrainLimits:
    """Sizes in passages and token slots, times in seconds."""

    batch_tokens: int = 1024
    live_passages: int = 16
    backfill_passages: int = 48
    claim_seconds: float = 120.0
    claim_longest_seconds: float = 900.0
    flip_grace_seconds: float = 10.0
    retry_base_seconds: float = 5.0
    max_errors: int = 5


class Drain:
    """One worker's loop over the passages of the generations it can produce."""

    def __init__(
        self,
        passages: Passages,
        holds: Holds,
        store: VectorStore,
        embedder_for: Callable[[Space], Embedder | None],
        breaker: Breaker,
        limits: DrainLimits,
    ) -> None:
        self._passages = passages
        self._holds = holds
        self._store = store
        self._embedder_for = embedder_for
        self._breaker = breaker
        self._limits = limits
        self._turn = 0
        self._after: dict[tuple[int, Lane], str] = {}
        self._held: dict[int, float] = {}
        self._live = LiveVectors(store)

    def run(self, generations: Sequence[Generation], more_time: Callable[[], bool]) -> int:
        """Works until nothing is pending, the time is up or the breaker opens; returns passages written.

        ``generations`` in the order of their claim to the encoder: serving, building, draining.
        """
        mine = self._mine(generations)

        def work() -> int:
            with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(1) as writer:
                return self._loop(mine, more_time, ahead, writer)

        return self._guarded(work) if mine and not self._breaker.open else 0

    def serve_live(self, generations: Sequence[Generation]) -> int:
        """Only what somebody waits for: for a task that holds the encoder for long and can pause."""
        mine = self._mine(generations)
        return self._guarded(lambda: self._serve_live(mine)) if mine and not self._breaker.open else 0

    def _mine(self, generations: Sequence[Generation]) -> list[tuple[Generation, Embedder]]:
        pairs = [(g, self._embedder_for(g.space)) for g in generations]
        return [(g, e) for g, e in pairs if e is not None]

    def _guarded(self, work: Callable[[], int]) -> int:
        """Whatever goes wrong, what is held is given back, or left to lapse where somebody may be to blame."""
        try:
            written = work()
        except InfrastructureDown:
            self._breaker.failed()
            self._give_all_back()
            raise
        except CollectionGone:
            # Void when a retired generation was dropped under us; a lost collection is made again by the sweep.
            self._give_all_back(self._limits.retry_base_seconds)
            return 0
        except BaseException:
            # Nobody knows whose fault this was: as after a lost worker the groups come back in halves, but at once.
            self._let_lapse()
            raise
        self._breaker.succeeded()
        return written

    def _loop(
        self,
        mine: list[tuple[Generation, Embedder]],
        more_time: Callable[[], bool],
        ahead: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
    ) -> int:
        written = 0
        while True:
            wrote = self._pipeline(mine, more_time, ahead, writer)
            written += wrote
            # What a lost worker held is tried with nothing else in hand: if it kills this one, it dies alone.
            suspects = self._claim_suspects(mine)
            if suspects is not None:
                written += self._alone(suspects)
            elif not wrote or not self._passages.live_waiting([g.id for g, _ in mine]):
                return written
            if not more_time():
                return written

    def _pipeline(
        self,
        mine: list[tuple[Generation, Embedder]],
        more_time: Callable[[], bool],
        ahead: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
    ) -> int:
        """Until nothing can be claimed ahead, the time is up or suspects wait; holds nothing when it returns."""
        written = 0
        writing: Future[int] | None = None
        lane = Lane.LIVE
        coming: Future[Load | None] = ahead.submit(self._next, mine, lane)
        while (load := coming.result()) is not None:
            lane = load.group.passages[0].lane
            coming = ahead.submit(self._next, mine, lane) if more_time() else ahead.submit(lambda: None)
            for batch in pack([len(i) for i in load.ids], self._limits.batch_tokens):
                written += self._serve_live(mine) if lane is Lane.BACKFILL else 0
                self._encode(load, batch)
            written += self._written(mine, writing, lane)
            writing = writer.submit(self._store_load, load)
        return written + self._written(mine, writing, lane)

    def _written(self, mine: list[tuple[Generation, Embedder]], writing: Future[int] | None, in_hand: Lane) -> int:
        """Waits for a write. A backfill's may stall for seconds: the encoder is free meanwhile for whoever waits."""
        served = 0
        while writing and in_hand is Lane.BACKFILL and wait([writing], LOOK_SECONDS).not_done:
            served += self._serve_live(mine)
        return served + (writing.result() if writing else 0)

    def _serve_live(self, mine: list[tuple[Generation, Embedder]]) -> int:
        """Somebody waits: their passages go before the next backfill batch, which then has its turn."""
        written = 0
        for _ in range(LIVE_GROUPS):
            waiting = self._passages.live_waiting([g.id for g, _ in mine])
            load = self._claim(mine, (Lane.LIVE,)) if waiting else None
            if load is None:
                break
            written += self._alone(load)
        return written

    def _alone(self, load: Load) -> int:
        """One group from beginning to end, in this thread."""
        for batch in pack([len(i) for i in load.ids], self._limits.batch_tokens):
            self._encode(load, batch)
        return self._store_load(load)

    def _next(self, mine: list[tuple[Generation, Embedder]], in_hand: Lane) -> Load | None:
        """Claimed ahead of its turn, so behind a backfill only backfill: live work goes before its next batch."""
        self._turn += 1
        if self._turn % 4 == 2 and self._passages.suspects_waiting([g.id for g, _ in mine]):
            return None
        # One claim in eight starts with the backfill lane: live work never starves it.
        order: Sequence[Lane] = (Lane.BACKFILL, Lane.LIVE) if self._turn % 8 == 0 else (Lane.LIVE, Lane.BACKFILL)
        if in_hand is Lane.BACKFILL:
            order = (Lane.BACKFILL,)
        return self._claim(mine, order)

    def _claim(self, mine: list[tuple[Generation, Embedder]], lanes: Iterable[Lane]) -> Load | None:
        limits = self._limits
        times = (limits.claim_seconds, limits.claim_longest_seconds)
        for lane in lanes:
            for generation, embedder in mine:
                size = limits.live_passages if lane is Lane.LIVE else limits.backfill_passages
                key = (generation.id, lane)
                group = self._passages.claim_passages(generation.id, lane, size, *times, self._after.get(key, ""))
                if group is not None:
                    self._after[key] = group.after
                    return self._open(group, generation, embedder)
        return None

    def _claim_suspects(self, mine: list[tuple[Generation, Embedder]]) -> Load | None:
        for generation, embedder in mine:
            group = self._passages.claim_suspects(
                generation.id, self._limits.claim_seconds, self._limits.claim_longest_seconds
            )
            if group is not None:
                # The probe is the other success that lets a lone item be blamed when nothing else is pending.
                if encoder_answers(embedder):
                    self._holds.note_probe(generation.id)
                return self._open(group, generation, embedder)
        return None

    def _open(self, group: Group, generation: Generation, embedder: Embedder) -> Load:
        self._held[group.token] = time.monotonic()
        load = Load(group=group, generation=generation, embedder=embedder)
        self._live.copy_into(load)
        tokenize(load)
        return load

    def _encode(self, load: Load, batch: Sequence[int]) -> None:
        started = time.monotonic()
        for index, outcome in zip(batch, encode_batch(load.embedder, [load.ids[i] for i in batch]), strict=True):
            load.take(load.todo[index], outcome)
        load.slots += slots([len(i) for i in load.ids], [batch])
        load.seconds += time.monotonic() - started
        self._extend_held()

    def _extend_held(self) -> None:
        """Progress was made, so the claims live on; a worker that hangs makes none and loses them."""
        now = time.monotonic()
        for token, since in list(self._held.items()):
            if now - since > self._limits.claim_seconds / 4:
                self._held[token] = now
                self._holds.extend(token, self._limits.claim_seconds)

    def _store_load(self, load: Load) -> int:
        group = load.group
        try:
            load.written = upsert(self._store, load, load.rows, load.written)
        except CollectionGone:
            # A retired generation was dropped under us: its work is void. A lost collection is found by the sweep.
            self._give_back(group.token, delay=self._limits.retry_base_seconds)
            return 0
        encoded = {p.id for p in load.todo}
        copied = sum(p.id not in encoded for p in load.written)
        figures = GroupFigures(
            passages=len(load.written),
            copied=copied,
            tokens=sum(len(i) for i in load.ids),
            slots=load.slots,
            seconds=load.seconds,
        )
        for complete in self._passages.finish(group, load.written, figures):
            confirm(self._passages, self._store, load.generation, complete, self._limits.flip_grace_seconds)
        for passage, error in load.failed:
            self._passages.fail_passage(group, passage, error, self._limits.retry_base_seconds, self._limits.max_errors)
        self._held.pop(group.token, None)
        self._holds.finish_claim(group.token)
        return len(load.written)

    def _give_all_back(self, delay: float = 0.0) -> None:
        for token in list(self._held):
            self._give_back(token, delay)

    def _let_lapse(self) -> None:
        for token in list(self._held):
            self._held.pop(token, None)
            try:
                self._holds.extend(token, 0.0)
            except InfrastructureDown:
                return  # it lapses by itself, later

    def _give_back(self, token: int, delay: float = 0.0) -> None:
        self._held.pop(token, None)
        try:
            self._holds.release("passage", token, delay)
        except InfrastructureDown:
            # The database is what is down: the claim lapses by itself.
            return
