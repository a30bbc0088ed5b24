"""Maintenance of Milvus: pages, counts, drops, and the probes that refuse a store which measures differently."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from pipeline.adapters.milvus_connection import Connection
from pipeline.adapters.milvus_errors import translated
from pipeline.adapters.milvus_rules import quote
from pipeline.adapters.milvus_schema import build_index, build_schema, plan, properties
from pipeline.errors import PipelineError
from pipeline.ports import CollectionSpec, StoreInfo

_COSINE = 0.8085
# The question is the first of them: same, near, orthogonal, opposite.
_KNOWN = np.array(
    [[1, 0, 0, 0], [_COSINE, (1 - _COSINE**2) ** 0.5, 0, 0], [0, 0, 1, 0], [-1, 0, 0, 0]], dtype=np.float32
)
_EXPECTED = {"IP": (1.0, _COSINE, 0.0, -1.0), "L2": (0.0, 2 - 2 * _COSINE, 2.0, 4.0)}
_TOLERANCE = 1e-3
_SMOKE = (("数据库连接池怎么配置，超时", "连接池"), ("扣款失败 ERR_TIMEOUT 端口 8005", "ERR_TIMEOUT"))


class MilvusAdmin:
    """:class:`pipeline.ports.VectorStoreAdmin` on Milvus."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timeout = connection.timeout

    def info(self) -> StoreInfo:
        """Asks the server now; raises InfrastructureDown."""
        server = self._connection.server(fresh=True)
        problems = []
        if not server.bm25:
            problems.append(f"Milvus {server.version} is older than 2.5: it has no BM25, so search is dense only.")
        return StoreInfo(version=server.version, lexical=server.bm25, lite=server.lite, problems=tuple(problems))

    def collections(self) -> list[str]:
        """The names of the collections that exist."""
        with translated(""):
            return list(self._connection.client().list_collections(timeout=self._timeout))

    def keys(self, name: str, page: int = 1000) -> Iterator[list[str]]:
        """All primary keys in pages; complete for rows that nobody writes or deletes meanwhile."""
        # Not the client's query_iterator: Milvus 2.3.5 drops the Strong guarantee of iterator requests, and keys
        # written just before are missed. Lite gives the order only to those, and is always strong.
        order = {"iterator": "True"} if self._connection.server().lite else {}
        last = ""
        while keys := self._connection.call(name, partial(self._page, name, last, page, order)):
            if keys != sorted(keys):
                raise PipelineError(f"{name} does not answer in key order: a page after {last!r} would lose keys")
            yield keys
            last = keys[-1]

    def count(self, name: str) -> int:
        """Exact number of rows, read with Strong consistency."""
        rows = self._connection.call(
            name,
            lambda c: c.query(
                name, filter="", output_fields=["count(*)"], timeout=self._timeout, consistency_level="Strong"
            ),
        )
        return int(rows[0]["count(*)"])

    def drop(self, name: str) -> None:
        """Drop the collection; a missing one is no error."""
        with translated(name):
            self._connection.client().drop_collection(name, timeout=self._timeout)

    def probe_metric(self) -> None:
        """Store and search four known vectors, and known Chinese words where the server has BM25.

        Raises PipelineError that says what came back instead; leaves nothing behind.
        """
        for metric, expected in _EXPECTED.items():
            answer = self._probe(metric)
            if not np.allclose(answer, expected, rtol=0, atol=_TOLERANCE):
                told = ", ".join(f"{x:.4f}" for x in answer)
                wanted = ", ".join(f"{x:.4f}" for x in expected)
                raise PipelineError(f"this vector store answers {metric} with {told} where Milvus answers {wanted}")
        if self._connection.server().bm25:
            self._probe_words()

    def _page(self, name: str, last: str, page: int, order: dict[str, str], client: MilvusClient) -> list[str]:
        rows = client.query(
            name,
            filter=f"key > {quote(last)}",
            output_fields=["key"],
            limit=page,
            timeout=self._timeout,
            consistency_level="Strong",
            **order,
        )
        return [row["key"] for row in rows]

    def _probe(self, metric: str) -> list[float]:
        name = _probe_name()
        client = self._connection.client()
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=8)
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=_KNOWN.shape[1])
        index = MilvusClient.prepare_index_params()
        index.add_index("dense", index_type="FLAT", metric_type=metric)
        try:
            with translated(name):
                client.create_collection(name, schema=schema, timeout=self._timeout)
                client.create_index(name, index, timeout=self._timeout, sync=False)
                client.load_collection(name, timeout=3 * self._timeout)
                client.upsert(name, [{"key": str(i), "dense": v} for i, v in enumerate(_KNOWN)], timeout=self._timeout)
                return self._ask(name, _KNOWN[0], "dense", metric)
        finally:
            self.drop(name)

    def _ask(self, name: str, question: Any, field: str, metric: str) -> list[float]:
        hits = self._connection.client().search(
            name,
            data=[question],
            anns_field=field,
            limit=len(_KNOWN),
            output_fields=["key"],
            search_params={"metric_type": metric, "params": {}},
            timeout=self._timeout,
            consistency_level="Strong",
        )[0]
        return [float(h["distance"]) for h in sorted(hits, key=lambda h: str(h["entity"]["key"]))]

    def _probe_words(self) -> None:
        spec = CollectionSpec(name=_probe_name(), space="probe", dimension=_KNOWN.shape[1])
        layout = plan(spec, self._connection.server())
        client = self._connection.client()
        try:
            with translated(spec.name):
                stamp = properties(spec, layout)
                client.create_collection(
                    spec.name, schema=build_schema(spec, layout), properties=stamp, timeout=self._timeout
                )
                for field in ("dense", "lexical"):
                    client.create_index(spec.name, build_index(field, layout), timeout=self._timeout, sync=False)
                client.load_collection(spec.name, timeout=3 * self._timeout)
                client.upsert(
                    spec.name, [_smoke_row(i, text) for i, (text, _) in enumerate(_SMOKE)], timeout=self._timeout
                )
                missed = [word for _, word in _SMOKE if not self._ask(spec.name, word, "lexical", "BM25")]
        except MilvusException as error:
            raise PipelineError(f"this vector store cannot search Chinese text: {error.message}") from error
        finally:
            self.drop(spec.name)
        if missed:
            raise PipelineError(f"this vector store does not find {', '.join(missed)} in a text that contains it")


def _probe_name() -> str:
    return f"wellhead_probe_{os.getpid()}_{secrets.token_hex(4)}"


def _smoke_row(index: int, text: str) -> dict[str, Any]:
    words = {"key": str(index), "tenant": "probe", "kind": "probe", "domain": "probe", "hash": "", "headings": "[]"}
    numbers = dict.fromkeys(("document", "version", "ordinal", "start", "end"), 0)
    return {**words, **numbers, "text": text, "dense": _KNOWN[index]}
