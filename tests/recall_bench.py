"""One process with a real ledger and a fake encoder and store, for tests of recall."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from pipeline.adapters.ledger.recalls import RecallLedger
from pipeline.breaker import Breaker
from pipeline.documents import Block, Event, Lane, Upload
from pipeline.embed import Drain, DrainLimits
from pipeline.errors import InfrastructureDown, Unavailable
from pipeline.generation import SCHEMA_VERSION
from pipeline.generations import in_order
from pipeline.prepare import PrepareLimits, prepare
from pipeline.query_vectors import QueryVectors
from pipeline.recall import Recall, RecallLimits, RecallParts
from pipeline.recall_answers import RecallAnswer, RecallRequest
from pipeline.receive import receive
from tests.fakes import HashEmbedder
from tests.fakes_vectors import InMemoryVectors

START = datetime(2026, 6, 7, 8, 9, tzinfo=UTC)


class Kept:
    """Keeps the rows of tool_invocation."""

    def __init__(self) -> None:
        self.rows = []

    def put(self, invocation) -> None:
        self.rows.append(invocation)


class Encoder(HashEmbedder):
    """May be down for questions; remembers every text that was encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.texts: list[str] = []

    def tokenize(self, texts, role):
        if self.down:
            raise Unavailable("the encoder is down", part="encoder")
        self.texts.extend(texts)
        return super().tokenize(texts, role)


def event(
    text: str | None, minutes: int = 0, *, at: datetime = START, source: str = "webui", media=(), **fields
) -> Event:
    blocks = [] if text is None else [Block(type="text", text=text)]
    blocks += [Block(type=mime.split("/")[0], mime=mime, ref=f"media/{i}") for i, mime in enumerate(media)]
    return Event(at=at + timedelta(minutes=minutes), source=source, blocks=tuple(blocks), **fields)


def events(*texts: str, **fields) -> tuple[Event, ...]:
    return tuple(event(text, i, **fields) for i, text in enumerate(texts))


class RecallBench:
    """Uploads, embeds, recalls."""

    def __init__(self, ledgers, *, encoder=None, store=None, rule: str = "r1:64", **limits) -> None:
        self.ledgers = ledgers
        self.encoder = encoder or Encoder()
        self.store = store or InMemoryVectors()
        prefix = f"t{uuid.uuid4().hex[:8]}"
        self.generation = ledgers.generations.ensure(self.encoder.space, rule, SCHEMA_VERSION, prefix)
        self.store.create(self.generation.spec)
        self.kept = Kept()
        self._parts: RecallParts | None = None
        self.limits = RecallLimits(**limits)
        self.episodes = RecallLedger(ledgers.engine)

    def parts(self) -> RecallParts:
        if self._parts is None:
            self._parts = self._made()
        return self._parts

    def _made(self) -> RecallParts:
        return RecallParts(
            ledger=self.episodes,
            vectors=self.store,
            queries=QueryVectors(lambda _: self.encoder, remember=0),
            invocations=self.kept,
            limits=self.limits,
        )

    def put(self, key: str, *said: str | Event, tenant: str = "default", **fields) -> int:
        given = tuple(event(s, i) if isinstance(s, str) else s for i, s in enumerate(said))
        upload = Upload(key=key, events=given, title=fields.pop("title", key), **fields)
        return receive(self.ledgers.documents, tenant, upload, Lane.LIVE).document

    def embed(self) -> None:
        limits = DrainLimits(batch_tokens=4096, live_passages=256, backfill_passages=256)
        while self._prepare() or self._drain(limits):
            continue

    def remember(self, key: str, *said: str | Event, **fields) -> int:
        document = self.put(key, *said, **fields)
        self.embed()
        return document

    def recall(self, query: str, *, tenant: str = "default", **asked) -> RecallAnswer:
        return Recall(tenant, self.parts()).recall(RecallRequest(query=query, **asked))

    def settle(self, tenant: str = "default") -> Recall:
        return Recall(tenant, self.parts())

    def state(self, key: str, tenant: str = "default") -> str:
        return str(self.ledgers.documents.view(tenant, key).state)

    def _prepare(self) -> int:
        return prepare(
            self.ledgers.preparing,
            self.ledgers.generations,
            lambda _: self.encoder.tokenizer,
            PrepareLimits(retry_base_seconds=0),
            lambda: True,
        )

    def _drain(self, limits) -> int:
        drain = Drain(
            self.ledgers.passages, self.ledgers.passages, self.store, lambda _: self.encoder, Breaker(), limits
        )
        return drain.run(in_order(self.ledgers.generations.active()), lambda: True)


__all__ = ["InfrastructureDown", "RecallBench", "event", "events"]
