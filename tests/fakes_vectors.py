"""A vector store in memory that obeys the same rules as the real one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.adapters import milvus_rules as rules
from pipeline.errors import CollectionGone, Conflict, InfrastructureDown, WrongSpace
from pipeline.ports import (
    CollectionSpec,
    Hit,
    LegResults,
    QueryVector,
    Scope,
    StoredRow,
    StoreInfo,
    VectorRow,
    VectorStoreAdmin,
)

_WORD = re.compile(r"[a-z0-9_]+|[\u3400-\u9fff]+")


def words(text: str) -> list[str]:
    """ASCII words whole, CJK runs as single characters' pairs."""
    found: list[str] = []
    for run in _WORD.findall(text.lower()):
        cjk = run[0] >= "\u3400" and len(run) > 1
        found += [run[i : i + 2] for i in range(len(run) - 1)] if cjk else [run]
    return found


@dataclass
class _Collection:
    spec: CollectionSpec
    rows: dict[str, VectorRow] = field(default_factory=dict)


class InMemoryVectors:
    """:class:`pipeline.ports.VectorStore` and its admin side in one object.

    ``down = True`` makes every call raise InfrastructureDown; ``lexical=False`` is a server before 2.5;
    ``calls`` names the writes and searches in order; ``wipe()`` loses everything, as a store may.
    """

    def __init__(self, *, lexical: bool = True) -> None:
        self.down = False
        self.calls: list[str] = []
        self._lexical = lexical
        self._collections: dict[str, _Collection] = {}

    def wipe(self) -> None:
        self._collections.clear()

    def admin(self) -> VectorStoreAdmin:
        return self

    def create(self, spec: CollectionSpec) -> None:
        self._enter("create")
        held = self._collections.setdefault(spec.name, _Collection(spec))
        self._same(held, spec)

    def upsert(self, spec: CollectionSpec, rows: Sequence[VectorRow]) -> None:
        self._enter("upsert")
        rules.check_rows(spec, rows)
        self._open(spec).rows.update({row.key: row for row in rows})

    def fetch(self, spec: CollectionSpec, keys: Sequence[str], *, vectors: bool = False) -> dict[str, StoredRow]:
        self._enter("fetch")
        rules.check_keys(keys)
        rows = self._open(spec).rows
        return {k: _stored(spec, rows[k], vectors) for k in keys if k in rows}

    def delete(self, spec: CollectionSpec, keys: Sequence[str]) -> None:
        self._enter("delete")
        rules.check_keys(keys)
        rows = self._open(spec).rows
        for key in keys:
            rows.pop(key, None)

    def search(
        self, spec: CollectionSpec, query: QueryVector | None, text: str, scope: Scope, limit: int
    ) -> LegResults:
        self._enter("search")
        rules.check_limit(limit)
        rules.scope_filter(scope)
        if query is not None:
            if query.space != spec.space:
                raise WrongSpace(f"a vector of {query.space} was offered to {spec.space}")
            rules.check_query(spec, query)
        rows = [row for row in self._open(spec).rows.values() if _seen(row, scope)]
        near = {} if query is None else {r.key: float(np.clip(r.dense @ query.dense, -1, 1)) for r in rows}
        dense = [(near[r.key], r) for r in rows if near]
        lexical = self._lexical_leg(spec, query, text, rows, limit)
        return LegResults(
            dense=tuple(_hit(r, dense=s) for s, r in _best(dense, limit)),
            lexical=None if lexical is None else tuple(replace(h, dense=near.get(h.key)) for h in lexical),
        )

    def _lexical_leg(
        self, spec: CollectionSpec, query: QueryVector | None, text: str, rows: list[VectorRow], limit: int
    ) -> tuple[Hit, ...] | None:
        if not self._lexical:
            return None
        if not spec.sparse:
            scored = _bm25(words(rules.searchable(text)), rows)
        elif query is None or query.sparse is None:
            return None
        else:
            weights = query.sparse
            scored = [(sum(w * weights.get(t, 0.0) for t, w in (r.sparse or {}).items()), r) for r in rows]
        return tuple(_hit(r, lexical=s) for s, r in _best([x for x in scored if x[0] > 0], limit))

    def info(self) -> StoreInfo:
        self._enter("info")
        return StoreInfo(version="memory", lexical=self._lexical, lite=False)

    def probe_metric(self) -> None:
        self._enter("probe_metric")

    def collections(self) -> list[str]:
        self._enter("collections")
        return list(self._collections)

    def keys(self, name: str, page: int = 1000) -> Iterator[list[str]]:
        self._enter("keys")
        every = sorted(self._named(name).rows)
        for at in range(0, len(every), page):
            yield every[at : at + page]

    def count(self, name: str) -> int:
        self._enter("count")
        return len(self._named(name).rows)

    def drop(self, name: str) -> None:
        self._enter("drop")
        self._collections.pop(name, None)

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.down:
            raise InfrastructureDown("the vector store is down", part="milvus")

    def _named(self, name: str) -> _Collection:
        if name not in self._collections:
            raise CollectionGone(f"collection {name} does not exist")
        return self._collections[name]

    def _open(self, spec: CollectionSpec) -> _Collection:
        held = self._named(spec.name)
        self._same(held, spec)
        return held

    def _same(self, held: _Collection, spec: CollectionSpec) -> None:
        if (held.spec.space, held.spec.dimension) != (spec.space, spec.dimension):
            raise WrongSpace(f"collection {spec.name} belongs to another space")
        if held.spec != spec:
            raise Conflict(f"collection {spec.name} belongs to another generation")


def _seen(row: VectorRow, scope: Scope) -> bool:
    return (row.tenant, row.kind) == (scope.tenant, scope.kind) and scope.domain in (None, row.domain)


def _best(scored: list[tuple[float, VectorRow]], limit: int) -> list[tuple[float, VectorRow]]:
    return sorted(scored, key=lambda x: -x[0])[:limit]


def _bm25(question: list[str], rows: list[VectorRow], k: float = 1.2, b: float = 0.75) -> list[tuple[float, VectorRow]]:
    bags = [Counter(words(row.text)) for row in rows]
    mean = sum(sum(bag.values()) for bag in bags) / max(1, len(bags)) or 1.0
    holding = Counter(word for bag in bags for word in bag)
    scored = []
    for bag, row in zip(bags, rows, strict=True):
        score = 0.0
        for word in set(question):
            rarity = math.log(1 + (len(bags) - holding[word] + 0.5) / (holding[word] + 0.5))
            score += rarity * bag[word] * (k + 1) / (bag[word] + k * (1 - b + b * sum(bag.values()) / mean))
        scored.append((score, row))
    return scored


def _stored(spec: CollectionSpec, row: VectorRow, vectors: bool) -> StoredRow:
    if not vectors:
        return StoredRow(key=row.key, hash=row.hash)
    return StoredRow(key=row.key, hash=row.hash, dense=row.dense.copy(), sparse=row.sparse if spec.sparse else None)


def _hit(row: VectorRow, *, dense: float | None = None, lexical: float | None = None) -> Hit:
    return Hit(
        key=row.key,
        document=row.document,
        version=row.version,
        ordinal=row.ordinal,
        domain=row.domain,
        hash=row.hash,
        start=row.start,
        end=row.end,
        headings=row.headings,
        dense=dense,
        lexical=lexical,
    )
