"""A corpus in memory behind the ports of a lookup: documents go in, questions are answered, parts break on demand."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipeline.answers import Invocation, LookupAnswer, LookupRequest
from pipeline.content import Excerpt
from pipeline.documents import VersionText
from pipeline.errors import InfrastructureDown
from pipeline.fingerprint import Space, fingerprint, passage_key
from pipeline.generation import Generation, Status
from pipeline.handout import ActionMemory, NoMemory
from pipeline.lexicon import Changes, LiveNames
from pipeline.live import LiveDocument, Liveness, ServingRow
from pipeline.lookup import Lookup, LookupLimits, LookupParts
from pipeline.ports import Embedder, Role, VectorRow
from pipeline.query_vectors import QueryVectors
from pipeline.rules import passages_of
from tests.fakes import HashEmbedder
from tests.fakes_vectors import InMemoryVectors

RULE = "r1:100"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One document: every version's (title, body), and which are live or still acceptable."""

    id: int
    tenant: str
    key: str
    domain: str
    keywords: tuple[str, ...]
    texts: dict[int, tuple[str, str]]
    live: int | None
    previous: int | None = None


class MemoryLedger:
    """The ``Lookups`` and ``NamesSource`` ports in memory. ``down``: every call raises InfrastructureDown."""

    def __init__(self) -> None:
        self.documents: dict[int, Stored] = {}
        self.generations: list[Generation] = []
        self.calibration: dict | None = None
        self.change = 0
        self.pending = 0
        self.down = False
        self.calls: list[str] = []

    def serving(self, tenant: str) -> ServingRow | None:
        self._enter("serving")
        if not self.generations:
            return None
        return ServingRow(generation=self.generations[-1], calibration=self.calibration, change=self.change)

    def liveness(self, tenant, generation, documents, *, keys, domain, metadata, grace) -> Liveness:
        self._enter("liveness")
        found = {
            d.id: LiveDocument(
                document=d.id,
                key=d.key,
                title=d.texts[d.live][0],
                domain=d.domain,
                source="",
                updated_at=NOW,
                live_version=d.live,
                prev_version=d.previous,
            )
            for d in self.documents.values()
            if d.live is not None
            and d.tenant == tenant
            and (d.id in documents or d.key in keys)
            and domain in (None, d.domain)
        }
        return Liveness(documents=found, pending=self.pending)

    def excerpts(self, places) -> dict[tuple[int, int], Excerpt]:
        self._enter("excerpts")
        out = {}
        for p in places:
            body = self.documents[p.document].texts[p.version][1]
            out[p.document, p.version] = Excerpt(
                text=body[p.start : p.start + p.length],
                offset=p.start,
                first_line=1 + body[: p.start].count("\n"),
                length=len(body),
            )
        return out

    def names(self, tenant, generation, since) -> Changes:
        self._enter("names")
        return Changes(
            names=[
                LiveNames(
                    document=d.id,
                    version=d.live,
                    title="" if d.live is None else d.texts[d.live][0],
                    keywords=d.keywords,
                )
                for d in self.documents.values()
                if d.tenant == tenant
            ],
            mark=0.0,
        )

    def bodies(self, versions) -> dict[tuple[int, int], str]:
        self._enter("bodies")
        return {(d, v): self.documents[d].texts[v][1] for d, v in versions}

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.down:
            raise InfrastructureDown("PostgreSQL is down", part="postgresql")


class Written(list[Invocation]):
    """The ``Invocations`` port as a list."""

    def put(self, invocation: Invocation) -> None:
        self.append(invocation)


class World:
    """A small corpus, its parts and one tenant's lookups."""

    def __init__(self, memory: ActionMemory | None = None, limits: LookupLimits | None = None) -> None:
        self.ledger = MemoryLedger()
        self.vectors = InMemoryVectors()
        self.embedder: Embedder | None = HashEmbedder(dimension=512)
        self.invocations = Written()
        self._memory = memory or NoMemory()
        self._limits = limits or LookupLimits()
        self.generate()
        self.lookups = self.lookup_of("default")

    def lookup_of(self, tenant: str) -> Lookup:
        return Lookup(
            tenant,
            LookupParts(
                ledger=self.ledger,
                names=self.ledger,
                vectors=self.vectors,
                queries=QueryVectors(lambda _: self.embedder),
                memory=self._memory,
                invocations=self.invocations,
                limits=self._limits,
            ),
        )

    def generate(self, space: Space | None = None, **changes) -> Generation:
        """Another generation serves from now on."""
        number = len(self.ledger.generations) + 1
        space = space or HashEmbedder(dimension=512).space
        made = Generation(
            id=number,
            fingerprint=fingerprint(space, RULE),
            space=space,
            rule=RULE,
            schema_version=1,
            collection=f"c{number}",
            status=Status.SERVING,
            **changes,
        )
        self.ledger.generations.append(made)
        self.vectors.create(made.spec)
        return made

    def put(
        self, key: str, body: str, *, title: str = "", domain: str = "default", tenant: str = "default", **rest
    ) -> int:
        """Uploads and makes searchable at once; the version before stays acceptable."""
        known = next((d for d in self.ledger.documents.values() if (d.tenant, d.key) == (tenant, key)), None)
        number = len(self.ledger.documents) + 1 if known is None else known.id
        version = 1 if known is None or known.live is None else known.live + 1
        texts = {} if known is None else known.texts
        self.ledger.documents[number] = Stored(
            id=number,
            tenant=tenant,
            key=key,
            domain=domain,
            keywords=tuple(rest.get("keywords", ())),
            texts={**texts, version: (title or key, body)},
            live=version,
            previous=None if known is None else known.live,
        )
        self.ledger.change += 1
        self._embed(number, version)
        return number

    def change(self, number: int, **changes) -> None:
        """What became of a document behind the vector store's back."""
        self.ledger.documents[number] = replace(self.ledger.documents[number], **changes)
        self.ledger.change += 1

    def settle(self) -> None:
        """Longer than a view of who serves is kept."""
        time.sleep(1.05)

    def _embed(self, number: int, version: int) -> None:
        stored = self.ledger.documents[number]
        title, body = stored.texts[version]
        encoder = HashEmbedder(dimension=512)
        passages = passages_of(RULE, VersionText(title=title, body=body), encoder.tokenizer)
        dense = encoder.encode(encoder.tokenize([p.text for p in passages], Role.PASSAGE)).dense
        rows = [
            VectorRow(
                key=passage_key(number, version, p.ordinal),
                tenant=stored.tenant,
                kind="article",
                domain=stored.domain,
                document=number,
                version=version,
                ordinal=p.ordinal,
                hash=p.hash,
                start=p.start,
                end=p.end,
                headings=p.headings,
                text=p.text,
                dense=v,
            )
            for p, v in zip(passages, dense, strict=True)
        ]
        self.vectors.upsert(self.ledger.generations[-1].spec, rows)


def ask(world: World, query: str, **rest) -> LookupAnswer:
    """The default tenant's answer."""
    return world.lookups.lookup(LookupRequest(query=query, **rest))
