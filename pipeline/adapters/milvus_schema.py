"""How one generation lies in Milvus: fields, indexes, and the stamp that says whose collection it is.

No dynamic field, no auto id, no alias, no partition key: each of them has a way to keep two rows of one key.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.milvus_client import IndexParams

from pipeline.adapters import milvus_rules as rules
from pipeline.errors import Conflict, WrongSpace
from pipeline.ports import CollectionSpec

STAMP = "wellhead.spec"
HIT_FIELDS = ["key", "tenant", "kind", "domain", "document", "version", "ordinal", "hash", "start", "end", "headings"]
_INTEGERS = ("document", "version", "ordinal", "start", "end")
_PUNCTUATION = list("，。、；：？！“”‘’（）《》【】—…·,.;:?!\"'()<>[]{}|/\\-_=+*&^%$#@~`")
# The one form that Milvus Lite and every server since 2.5 take; both find Chinese words with it. The stop
# words keep a question mark from matching every text that has one; Lite lower-cases by itself.
ANALYZER = {"tokenizer": "jieba", "filter": ["lowercase", {"type": "stop", "stop_words": _PUNCTUATION}]}


@dataclass(frozen=True, kw_only=True)
class Server:
    """What a server said of itself."""

    version: str
    number: tuple[int, int]
    lite: bool

    @property
    def bm25(self) -> bool:
        """Makes sparse vectors of text by itself."""
        return self.lite or self.number >= (2, 5)

    @property
    def sparse(self) -> bool:
        """Stores sparse vectors."""
        return self.lite or self.number >= (2, 4)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What an existing collection has. ``lexical``: ``bm25``, ``sparse`` or None; ``exact``: searched without a graph."""

    lexical: str | None
    exact: bool


def read_server(version: str) -> Server:
    """``milvus_lite-3.2.2``, ``v2.3.5-lite``, ``2.6.4`` → a Server. (Milvus 2.3's ``-lite`` is a real server.)"""
    found = re.search(r"(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    return Server(version=version, number=number, lite=version.startswith("milvus_lite"))


def plan(spec: CollectionSpec, server: Server) -> Layout:
    """How to lay out a new collection on this server.

    Lite gets FLAT: its HNSW returned 4 of a small tenant's 20 rows (recall 0.36) and builds in the way of
    searches, while FLAT IP costs 53–77 ms against 34–52 at 20,000 passages. Servers get HNSW.
    """
    if spec.sparse:
        return Layout(lexical="sparse" if server.sparse else None, exact=server.lite)
    return Layout(lexical="bm25" if server.bm25 else None, exact=server.lite)


def build_schema(spec: CollectionSpec, layout: Layout) -> CollectionSchema:
    """The fields of the collection. Without a BM25 leg the text is not stored: nothing would read it."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=_stamp(spec, layout))
    for name, most in rules.FIELD_BYTES.items():
        schema.add_field(name, DataType.VARCHAR, is_primary=name == "key", max_length=most)
    for name in _INTEGERS:
        schema.add_field(name, DataType.INT64)
    schema.add_field("headings", DataType.VARCHAR, max_length=rules.MAX_HEADINGS_BYTES)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=spec.dimension)
    if layout.lexical:
        schema.add_field("lexical", DataType.SPARSE_FLOAT_VECTOR)
    if layout.lexical == "bm25":
        most = rules.MAX_TEXT_BYTES
        schema.add_field("text", DataType.VARCHAR, max_length=most, enable_analyzer=True, analyzer_params=ANALYZER)
        schema.add_function(
            Function(
                name="bm25",
                function_type=FunctionType.BM25,
                input_field_names=["text"],
                output_field_names=["lexical"],
            )
        )
    return schema


def build_index(field: str, layout: Layout) -> IndexParams:
    """The index of one vector field."""
    params = MilvusClient.prepare_index_params()
    if field == "lexical":
        metric = "BM25" if layout.lexical == "bm25" else "IP"
        params.add_index("lexical", index_type="SPARSE_INVERTED_INDEX", metric_type=metric)
    elif layout.exact:
        params.add_index("dense", index_type="FLAT", metric_type="IP")
    else:
        graph = {"M": 16, "efConstruction": 200}
        params.add_index("dense", index_type="HNSW", metric_type="IP", params=graph)
    return params


def vector_fields(layout: Layout) -> list[str]:
    """The fields that need an index."""
    return ["dense", "lexical"] if layout.lexical else ["dense"]


def properties(spec: CollectionSpec, layout: Layout) -> dict[str, str]:
    """What is written on the collection: Lite keeps properties but forgets descriptions."""
    return {STAMP: _stamp(spec, layout)}


def read_layout(spec: CollectionSpec, described: dict[str, Any]) -> Layout:
    """Check an existing collection against the spec; raises WrongSpace or Conflict with what differs."""
    stamp = _read_stamp(described)
    wanted = _content(spec)
    differs = [k for k in wanted if stamp.get(k) != wanted[k]]
    if differs:
        kind = WrongSpace if {"space", "dimension"} & set(differs) else Conflict
        told = ", ".join(f"{k} is {stamp.get(k)!r}, not {wanted[k]!r}" for k in differs)
        raise kind(f"collection {spec.name} belongs to another generation: {told}", collection=spec.name)
    names = {field["name"] for field in described["fields"]}
    lexical = None if "lexical" not in names else "bm25" if "text" in names else "sparse"
    return Layout(lexical=lexical, exact=stamp.get("index") == "FLAT")


def _content(spec: CollectionSpec) -> dict[str, object]:
    return {
        "space": spec.space,
        "dimension": spec.dimension,
        "sparse": spec.sparse,
        "schema_version": spec.schema_version,
    }


def _stamp(spec: CollectionSpec, layout: Layout) -> str:
    return json.dumps(_content(spec) | {"index": "FLAT" if layout.exact else "HNSW"}, sort_keys=True)


def _read_stamp(described: dict[str, Any]) -> dict[str, object]:
    written = described.get("properties", {}).get(STAMP) or described.get("description") or "{}"
    try:
        stamp = json.loads(written)
    except json.JSONDecodeError:
        # Somebody else's description: it then differs from any spec, and that is what is reported.
        return {}
    return stamp if isinstance(stamp, dict) else {}
