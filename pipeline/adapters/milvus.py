"""The vector store in Milvus: one collection per generation, written and read by passage key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from pipeline.adapters import milvus_rules as rules
from pipeline.adapters import milvus_schema as schema
from pipeline.adapters.milvus_admin import MilvusAdmin
from pipeline.adapters.milvus_connection import Connection
from pipeline.adapters.milvus_errors import translated
from pipeline.adapters.milvus_schema import HIT_FIELDS, Layout
from pipeline.adapters.milvus_search import search_dense, search_lexical, with_dense_scores
from pipeline.errors import CollectionGone, WrongSpace
from pipeline.ports import (
    CollectionSpec,
    LegResults,
    QueryVector,
    Scope,
    StoredRow,
    VectorRow,
    VectorStoreAdmin,
)


class MilvusVectors:
    """:class:`pipeline.ports.VectorStore` on Milvus Lite's server or any Milvus since 2.3; thread-safe.

    Nothing is connected before the first call. ``timeout``: seconds per call, thrice that for upserts and loads.
    Every method raises InfrastructureDown when Milvus does not answer.
    """

    def __init__(self, uri: str, token: str = "", timeout: float = 10.0) -> None:
        self._connection = Connection(uri, token, timeout)
        self._timeout = timeout
        self._layouts: dict[CollectionSpec, Layout] = {}

    def close(self) -> None:
        """Give the connection back; a later call opens a new one."""
        self._connection.close()
        self._layouts.clear()

    def admin(self) -> VectorStoreAdmin:
        """The maintenance side, over the same connection."""
        return MilvusAdmin(self._connection)

    def create(self, spec: CollectionSpec) -> None:
        """Create, index and load; safe when several processes do it at once.

        Raises WrongSpace or Conflict when another spec already has the name.
        """
        # Somebody else may have dropped it since this process opened it: what is remembered says nothing.
        self._layouts.pop(spec, None)
        try:
            layout = self._open(spec)
        except CollectionGone:
            self._create_collection(spec)
            layout = self._open(spec)
        for field in schema.vector_fields(layout):
            self._create_index(spec.name, field, layout)
        self._connection.load(spec.name)

    def upsert(self, spec: CollectionSpec, rows: Sequence[VectorRow]) -> None:
        """Write rows in calls of ≤ 1,000 rows (200 on Lite) and ≤ 16 MiB; nothing is written when one row breaks a rule."""
        rules.check_rows(spec, rows)
        layout = self._open(spec)
        most = rules.MAX_LITE_ROWS if self._connection.server().lite else rules.MAX_CALL_ROWS
        for chunk in rules.chunks(rows, most):
            data = [_stored(row, layout) for row in chunk]
            self._write(spec, lambda c, d=data: c.upsert(spec.name, d, timeout=3 * self._timeout))

    def delete(self, spec: CollectionSpec, keys: Sequence[str]) -> None:
        """Delete by primary key, ≤ 1,000 a call; missing keys are no error."""
        rules.check_keys(keys)
        self._open(spec)
        for at in range(0, len(keys), rules.MAX_CALL_ROWS):
            some = list(keys[at : at + rules.MAX_CALL_ROWS])
            self._write(spec, lambda c, s=some: c.delete(spec.name, ids=s, timeout=self._timeout))

    def fetch(self, spec: CollectionSpec, keys: Sequence[str], *, vectors: bool = False) -> dict[str, StoredRow]:
        """The rows that exist among ``keys``, read with Strong consistency."""
        rules.check_keys(keys)
        layout = self._open(spec)
        fields = ["key", "hash"]
        if vectors:
            # A BM25 leg is an output of the server's function and cannot be read back.
            fields += ["dense", "lexical"] if layout.lexical == "sparse" else ["dense"]
        found: dict[str, StoredRow] = {}
        for at in range(0, len(keys), rules.MAX_CALL_ROWS):
            for row in self._query_keys(spec, keys[at : at + rules.MAX_CALL_ROWS], fields):
                found[row["key"]] = _stored_row(row)
        return found

    def search(
        self, spec: CollectionSpec, query: QueryVector | None, text: str, scope: Scope, limit: int
    ) -> LegResults:
        """Both legs, ``limit`` hits each; ``query=None`` leaves out what needs the encoder.

        In a space with sparse weights the lexical leg needs the encoder too: without it, it is None.
        Raises WrongSpace, CollectionGone, BadVector, InvalidInput (empty scope, bad limit).
        """
        rules.check_limit(limit)
        expression = rules.scope_filter(scope)
        if query is not None:
            if query.space != spec.space:
                raise WrongSpace(f"a vector of {query.space} was offered to {spec.space}", collection=spec.name)
            rules.check_query(spec, query)
        layout = self._open(spec)
        try:
            dense = (
                () if query is None else search_dense(self._connection, spec, layout, query, scope, expression, limit)
            )
            lexical = search_lexical(self._connection, spec, layout, query, text, scope, expression, limit)
            if lexical and query is not None:
                lexical = with_dense_scores(self._connection, spec, query, lexical, dense)
        except CollectionGone:
            self._layouts.pop(spec, None)
            raise
        return LegResults(dense=dense, lexical=lexical)

    def _open(self, spec: CollectionSpec) -> Layout:
        layout = self._layouts.get(spec)
        if layout is None:
            described = self._connection.call(
                spec.name, lambda c: c.describe_collection(spec.name, timeout=self._timeout)
            )
            layout = self._layouts[spec] = schema.read_layout(spec, described)
        return layout

    def _create_collection(self, spec: CollectionSpec) -> None:
        layout = schema.plan(spec, self._connection.server())
        fields, stamp = schema.build_schema(spec, layout), schema.properties(spec, layout)
        client = self._connection.client()
        try:
            with translated(spec.name):
                client.create_collection(spec.name, schema=fields, properties=stamp, timeout=self._timeout)
        except MilvusException:
            # Another process may have been first; then its collection is the one to check and use.
            if spec.name not in self._connection.call("", lambda c: c.list_collections(timeout=self._timeout)):
                raise

    def _create_index(self, name: str, field: str, layout: Layout) -> None:
        def indexed(client: MilvusClient) -> bool:
            return bool(client.list_indexes(name, field_name=field, timeout=self._timeout))

        if self._connection.call(name, indexed):
            return
        params = schema.build_index(field, layout)
        try:
            # Not waited for: the collection is empty, and the client would poll in half seconds.
            self._connection.call(name, lambda c: c.create_index(name, params, timeout=self._timeout, sync=False))
        except MilvusException:
            if not self._connection.call(name, indexed):
                raise

    def _write(self, spec: CollectionSpec, function: Any) -> None:
        try:
            self._connection.write(spec.name, function)
        except CollectionGone:
            self._layouts.pop(spec, None)
            raise

    def _query_keys(self, spec: CollectionSpec, keys: Sequence[str], fields: list[str]) -> list[dict[str, Any]]:
        expression = rules.key_filter(keys)
        try:
            rows = self._connection.call(
                spec.name,
                lambda c: c.query(
                    spec.name,
                    filter=expression,
                    output_fields=fields,
                    timeout=self._timeout,
                    consistency_level="Strong",
                ),
            )
        except CollectionGone:
            self._layouts.pop(spec, None)
            raise
        return list(rows)


def _stored(row: VectorRow, layout: Layout) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(row, name) for name in HIT_FIELDS}
    data["headings"] = rules.encode_headings(row.headings)
    data["dense"] = np.ascontiguousarray(row.dense, dtype=np.float32)
    if layout.lexical == "bm25":
        data["text"] = rules.clip(row.text, rules.MAX_TEXT_BYTES)
    elif layout.lexical == "sparse":
        data["lexical"] = rules.stored_sparse(row.sparse)
    return data


def _stored_row(row: dict[str, Any]) -> StoredRow:
    return StoredRow(
        key=row["key"],
        hash=row["hash"],
        dense=np.asarray(row["dense"], dtype=np.float32) if "dense" in row else None,
        sparse=rules.read_sparse(row["lexical"]) if "lexical" in row else None,
    )
