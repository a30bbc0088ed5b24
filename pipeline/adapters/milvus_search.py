"""The two legs of one search, and the check that nothing of another owner comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.adapters import milvus_rules as rules
from pipeline.adapters.milvus_connection import Connection
from pipeline.adapters.milvus_schema import HIT_FIELDS, Layout
from pipeline.errors import PipelineError
from pipeline.ports import CollectionSpec, Floats, Hit, QueryVector, Scope

# Rows of a scope that are compared one by one when the graph found fewer than asked for.
EXACT_ROWS = 2_048


def search_dense(
    connection: Connection,
    spec: CollectionSpec,
    layout: Layout,
    query: QueryVector,
    scope: Scope,
    expression: str,
    limit: int,
) -> tuple[Hit, ...]:
    """The ``limit`` nearest by inner product, best first."""
    # ef below the limit is an error; above it buys recall.
    tuning = {"metric_type": "IP", "params": {} if layout.exact else {"ef": min(32_768, max(128, 2 * limit))}}
    vector = np.ascontiguousarray(query.dense, dtype=np.float32)
    found = _search(connection, spec, [vector], "dense", tuning, expression, limit)
    hits = [_hit(entity, scope, dense=_cosine(score)) for entity, score in found]
    if len(hits) < limit and not layout.exact:
        hits = _complete(hits, _scan(connection, spec, vector, scope, expression))
    return tuple(sorted(hits, key=lambda h: -(h.dense or 0.0))[:limit])


def search_lexical(
    connection: Connection,
    spec: CollectionSpec,
    layout: Layout,
    query: QueryVector | None,
    text: str,
    scope: Scope,
    expression: str,
    limit: int,
) -> tuple[Hit, ...] | None:
    """BM25 over the text, or the model's sparse weights; None where there is no such leg."""
    data: object
    if layout.lexical == "bm25":
        data, metric = rules.clip(rules.searchable(text), rules.MAX_TEXT_BYTES), "BM25"
        empty = not rules.has_words(text)
    elif layout.lexical == "sparse" and query is not None and query.sparse is not None:
        data, metric = {t: w for t, w in query.sparse.items() if w > 0}, "IP"
        empty = not data
    else:
        return None
    if empty:
        return ()
    tuning = {"metric_type": metric, "params": {}}
    found = _search(connection, spec, [data], "lexical", tuning, expression, limit)
    # Lite answers BM25 with the sign turned; a score of 0 shares no word.
    hits = (_hit(entity, scope, lexical=abs(score)) for entity, score in found if score)
    return tuple(sorted(hits, key=lambda h: -(h.lexical or 0.0)))


def with_dense_scores(
    connection: Connection, spec: CollectionSpec, query: QueryVector, lexical: tuple[Hit, ...], dense: tuple[Hit, ...]
) -> tuple[Hit, ...]:
    """The lexical hits with their inner products; one deleted since it was found stays without."""
    known = {hit.key: hit.dense for hit in dense}
    missing = [hit.key for hit in lexical if hit.key not in known]
    if missing:
        rows = connection.call(
            spec.name,
            lambda c: c.get(spec.name, ids=missing, output_fields=["key", "dense"], timeout=connection.timeout),
        )
        known |= {row["key"]: _inner_product(row["dense"], query.dense) for row in rows}
    return tuple(replace(hit, dense=known.get(hit.key)) for hit in lexical)


def _search(
    connection: Connection,
    spec: CollectionSpec,
    data: list[Any],
    field: str,
    tuning: dict[str, Any],
    expression: str,
    limit: int,
) -> list[tuple[dict[str, Any], float]]:
    answer = connection.call(
        spec.name,
        lambda c: c.search(
            spec.name,
            data=data,
            anns_field=field,
            filter=expression,
            limit=limit,
            output_fields=HIT_FIELDS,
            search_params=tuning,
            timeout=connection.timeout,
        ),
    )
    return [(dict(hit["entity"]), float(hit["distance"])) for hit in answer[0]]


def _scan(connection: Connection, spec: CollectionSpec, vector: Floats, scope: Scope, expression: str) -> Iterable[Hit]:
    """Compare the rows of a scope one by one.

    A graph search under a filter that keeps few rows comes back short, and so does the interim index a
    server puts on fresh rows: a real Milvus 2.3.5 found 2 of a small tenant's 20 passages among 20,000.
    """
    rows = connection.call(
        spec.name,
        lambda c: c.query(
            spec.name,
            filter=expression,
            output_fields=[*HIT_FIELDS, "dense"],
            limit=EXACT_ROWS,
            timeout=connection.timeout,
        ),
    )
    for row in rows:
        yield _hit(row, scope, dense=_inner_product(row["dense"], vector))


def _complete(hits: list[Hit], scanned: Iterable[Hit]) -> list[Hit]:
    return list({hit.key: hit for hit in [*scanned, *hits]}.values())


def _inner_product(stored: Any, vector: Floats) -> float:
    return _cosine(float(np.asarray(stored, dtype=np.float32) @ vector))


def _cosine(score: float) -> float:
    # Rounding makes 1.0000001 of two equal unit vectors.
    return max(-1.0, min(1.0, score))


def _hit(entity: dict[str, Any], scope: Scope, *, dense: float | None = None, lexical: float | None = None) -> Hit:
    owner = (entity["tenant"], entity["kind"], entity["domain"])
    wanted = (scope.tenant, scope.kind, entity["domain"] if scope.domain is None else scope.domain)
    if owner != wanted:
        # Fail closed: one row of another owner means that the filter was not applied.
        raise PipelineError("the vector store returned a row outside of the scope of the search")
    return Hit(
        key=entity["key"],
        document=int(entity["document"]),
        version=int(entity["version"]),
        ordinal=int(entity["ordinal"]),
        domain=entity["domain"],
        hash=entity["hash"],
        start=int(entity["start"]),
        end=int(entity["end"]),
        headings=rules.decode_headings(entity["headings"]),
        dense=dense,
        lexical=lexical,
    )
