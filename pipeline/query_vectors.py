"""Questions become vectors of the serving generation's space; the same question is encoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from pipeline.encode import encode_batch
from pipeline.errors import InvalidInput, Unavailable
from pipeline.fingerprint import Space
from pipeline.ports import Embedder, QueryVector, Role, TokenIds


class QueryCache(Protocol):
    """Vectors of questions shared between processes. A cache that is down answers None and keeps nothing."""

    def get(self, space: str, text: str) -> QueryVector | None:
        """The vector of this question in this space, if it is there."""
        ...

    def put(self, text: str, vector: QueryVector) -> None:
        """Keeps a vector under its space and question."""
        ...


class QueryVectors:
    """Encodes questions; remembers the last ``remember`` of them in the process and others in ``cache``."""

    def __init__(
        self, embedder_for: Callable[[Space], Embedder | None], cache: QueryCache | None = None, remember: int = 1024
    ) -> None:
        self._embedder_for = embedder_for
        self._cache = cache
        self._remember = remember
        self._known: OrderedDict[tuple[str, str], QueryVector] = OrderedDict()
        self._lock = threading.Lock()

    def vector(self, space: Space, text: str) -> QueryVector:
        """The question's vector. Raises Unavailable (part: encoder) when this process cannot make one."""
        key = (space.name, text)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        vector = self._cache.get(space.name, text) if self._cache is not None else None
        if vector is None:
            vector = self._encode(space, text)
            if self._cache is not None:
                self._cache.put(text, vector)
        with self._lock:
            self._known[key] = vector
            while len(self._known) > self._remember:
                self._known.popitem(last=False)
        return vector

    def _encode(self, space: Space, text: str) -> QueryVector:
        embedder = self._embedder_for(space)
        if embedder is None:
            raise Unavailable(f"this process has no encoder for {space.name}", part="encoder")
        encoded = encode_batch(embedder, [_tokens(embedder, text)])[0]
        if encoded.dense is None:
            raise Unavailable(f"the question could not be encoded: {encoded.error}", part="encoder")
        return QueryVector(space=space.name, dense=encoded.dense, sparse=encoded.sparse)


def _tokens(embedder: Embedder, text: str) -> TokenIds:
    """Of a question beyond the model's window its beginning: the rest still goes to the lexical leg."""
    try:
        return embedder.tokenize([text], Role.QUERY)[0]
    except InvalidInput:
        spans = embedder.tokenizer.spans(text)
        kept = min(len(spans), embedder.window)
        while kept > 1:
            kept -= max(1, kept // 16)
            try:
                return embedder.tokenize([text[: spans[kept - 1][1]]], Role.QUERY)[0]
            except InvalidInput:
                continue
        raise
