"""What a Milvus server accepts, enforced on our side: Milvus Lite accepts more, and a test on it would prove nothing.

Pure: no client library, so that fakes obey the same rules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from pipeline.errors import BadVector, InvalidInput
from pipeline.ports import CollectionSpec, Floats, QueryVector, Scope, VectorRow

MAX_LIMIT = 16_384
MAX_TEXT_BYTES = 65_535
MAX_HEADINGS_BYTES = 8_192
MAX_CALL_ROWS = 1_000
# Lite cuts words in the one process that also answers searches: 500 passages of Chinese take it 1.5 s.
MAX_LITE_ROWS = 200
# The server refuses 64 MB; a quarter of it leaves room for what gRPC and the column headers add.
MAX_CALL_BYTES = 16 * 1024 * 1024
# VARCHAR limits are UTF-8 bytes on a server and characters on Lite: ours are bytes.
FIELD_BYTES = {"key": 64, "tenant": 256, "kind": 32, "domain": 256, "hash": 128}
NORM_TOLERANCE = 0.01
_MAX_TOKEN_ID = 2**32 - 2
# No store takes an empty sparse vector; this id is no token of any vocabulary and no query asks for it.
NO_TOKENS = {_MAX_TOKEN_ID: 1e-6}


def clip(text: str, limit: int) -> str:
    """The longest start of ``text`` that takes at most ``limit`` UTF-8 bytes, cut between characters."""
    if len(text) * 4 <= limit:
        return text
    return text.encode("utf-8")[:limit].decode("utf-8", "ignore")


def storable(text: str) -> bool:
    """True when every backend keeps this text as it is: no NUL, no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def encode_headings(headings: Sequence[str]) -> str:
    """JSON within its field: when the path is too long each heading keeps an equal share."""
    whole = json.dumps(list(headings), ensure_ascii=False)
    if len(whole.encode("utf-8")) <= MAX_HEADINGS_BYTES:
        return whole
    # Half, because JSON may double a character by escaping it.
    share = (MAX_HEADINGS_BYTES - 2) // (2 * len(headings)) - 4
    cut = [clip(h, share) if share > 0 else "" for h in headings[: MAX_HEADINGS_BYTES // 8]]
    kept = json.dumps(cut, ensure_ascii=False)
    # Control characters grow sixfold; then only the outermost heading's start is kept.
    return kept if len(kept.encode("utf-8")) <= MAX_HEADINGS_BYTES else json.dumps([clip(headings[0], 1000)])


@lru_cache(maxsize=8192)
def decode_headings(stored: str) -> tuple[str, ...]:
    """The inverse of :func:`encode_headings`."""
    return tuple(json.loads(stored))


def check_rows(spec: CollectionSpec, rows: Sequence[VectorRow]) -> None:
    """Raise BadVector for the first row that a server would refuse or that must not be stored."""
    seen: set[str] = set()
    for row in rows:
        if row.key in seen:
            raise BadVector(f"key {row.key!r} occurs twice in one batch", key=row.key)
        seen.add(row.key)
        _check_strings(row)
        _check_dense(row.dense, spec.dimension, row.key)
        if spec.sparse:
            _check_sparse(row.sparse, row.key)


def check_keys(keys: Sequence[str]) -> None:
    """Raise InvalidInput for a key that no row can have."""
    for key in keys:
        if not key or not storable(key) or len(key.encode("utf-8")) > FIELD_BYTES["key"]:
            raise InvalidInput(f"{key[:80]!r} is no passage key", field="keys", limit=FIELD_BYTES["key"])


def check_query(spec: CollectionSpec, query: QueryVector) -> None:
    """Raise BadVector for a question's vector that has no meaningful distance."""
    _check_dense(query.dense, spec.dimension, "query")
    if spec.sparse and query.sparse:
        _check_sparse(query.sparse, "query")


def check_limit(limit: int) -> None:
    """Raise InvalidInput outside of 1…16,384."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit must be 1 to {MAX_LIMIT}, not {limit}", field="limit", limit=MAX_LIMIT)


def _check_strings(row: VectorRow) -> None:
    for name, most in FIELD_BYTES.items():
        value: str = getattr(row, name)
        if not value and name != "hash":
            raise BadVector(f"{name} of {row.key!r} is empty", key=row.key)
        if not storable(value):
            raise BadVector(f"{name} of {row.key[:80]!r} has a NUL or a lone surrogate", key=row.key)
        if len(value.encode("utf-8")) > most:
            raise BadVector(f"{name} of {row.key[:80]!r} is longer than {most} bytes", key=row.key)
    if not storable(row.text) or not all(storable(h) for h in row.headings):
        raise BadVector(f"text or headings of {row.key!r} have a NUL or a lone surrogate", key=row.key)


def _check_dense(dense: Floats, dimension: int, key: str) -> None:
    if dense.shape != (dimension,):
        raise BadVector(f"vector of {key!r} has shape {dense.shape}, not ({dimension},)", key=key)
    if not np.isfinite(dense).all():
        raise BadVector(f"vector of {key!r} is not finite", key=key)
    norm = float(np.linalg.norm(dense.astype(np.float64)))
    if abs(norm - 1.0) > NORM_TOLERANCE:
        raise BadVector(f"vector of {key!r} has length {norm:.4f}, not 1", key=key)


def _check_sparse(sparse: dict[int, float] | None, key: str) -> None:
    if sparse is None:
        raise BadVector(f"{key!r} has no sparse weights, but its space has", key=key)
    for token, weight in sparse.items():
        if not 0 <= token < _MAX_TOKEN_ID or not math.isfinite(weight) or weight < 0:
            raise BadVector(f"sparse weight {token}: {weight} of {key!r} cannot be stored", key=key)


def stored_sparse(sparse: dict[int, float] | None) -> dict[int, float]:
    """Weights as they are sent: zeros left out, never empty."""
    return {int(t): float(w) for t, w in (sparse or {}).items() if w > 0} or NO_TOKENS


def read_sparse(stored: dict[int, float]) -> dict[int, float]:
    """The inverse of :func:`stored_sparse`."""
    return {int(t): float(w) for t, w in stored.items() if int(t) not in NO_TOKENS}


def row_bytes(row: VectorRow) -> int:
    """A generous estimate of what one row takes on the wire."""
    text = min(4 * len(row.text), MAX_TEXT_BYTES)
    return 4 * row.dense.size + text + MAX_HEADINGS_BYTES // 8 + 12 * len(row.sparse or ()) + 1024


def chunks(rows: Sequence[VectorRow], most: int = MAX_CALL_ROWS) -> Iterator[Sequence[VectorRow]]:
    """Rows in calls of at most ``most`` rows and 16 MiB."""
    start, size = 0, 0
    for index, row in enumerate(rows):
        cost = row_bytes(row)
        if index > start and (index - start >= most or size + cost > MAX_CALL_BYTES):
            yield rows[start:index]
            start, size = index, 0
        size += cost
    if start < len(rows):
        yield rows[start:]


def searchable(text: str) -> str:
    """The query text itself; raises InvalidInput when it has a NUL or a lone surrogate."""
    if not storable(text):
        raise InvalidInput("the query has a NUL or a lone surrogate", field="query")
    return text


def has_words(text: str) -> bool:
    """False for a text that no analyzer finds a word in: such a query must find nothing, not everything."""
    return any(c.isalnum() for c in text)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(value: str) -> str:
    """A string literal of Milvus's filter language that means exactly ``value``."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'


def scope_filter(scope: Scope) -> str:
    """The filter of one search. An empty or unstorable part raises InvalidInput: never everything."""
    parts = []
    for name, value in (("tenant", scope.tenant), ("kind", scope.kind), ("domain", scope.domain)):
        if value is None and name == "domain":
            continue
        if not value or not storable(value):
            raise InvalidInput(f"the {name} of a search must not be empty or unprintable", field=name)
        parts.append(f"{name} == {quote(value)}")
    return " and ".join(parts)


def key_filter(keys: Sequence[str]) -> str:
    """The filter that names rows by primary key."""
    return f"key in [{', '.join(map(quote, keys))}]"
