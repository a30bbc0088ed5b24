"""Fakes behind the ports: deterministic, in memory, passing the same contracts as the real ones."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from pipeline.errors import InvalidInput
from pipeline.fingerprint import Space
from pipeline.ports import Embeddings, Role, TokenIds

_TOKEN = re.compile(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_]")
_BEGIN = {Role.QUERY: 1, Role.PASSAGE: 2}
_END = 3
_FIRST_WORD = 10


class WordTokenizer:
    """ASCII words and single other characters; two special tokens a text."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _TOKEN.finditer(text)]

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(self.spans(text)) + 2 for text in texts]


class HashEmbedder:
    """Bags of words as unit vectors: texts that share words are near, others far. Needs no model.

    ``batches`` keeps every batch that was encoded; ``before_encode`` sees a batch first and may raise.
    ``weights`` makes another space of the same words.
    """

    def __init__(
        self,
        *,
        dimension: int = 256,
        window: int = 512,
        weights: str = "0",
        sparse: bool = False,
        before_encode: Callable[[Sequence[TokenIds]], None] | None = None,
    ) -> None:
        self._dimension = dimension
        self._window = window
        self._weights = weights
        self._sparse = sparse
        self._tokenizer = WordTokenizer()
        self.before_encode = before_encode
        self.batches: list[list[TokenIds]] = []

    @property
    def space(self) -> Space:
        return Space(
            embedder="hash",
            model="hash",
            weights=self._weights,
            dimension=self._dimension,
            pooling="sum",
            normalised=True,
            query_prefix="",
            passage_prefix="",
            precision="fp32",
            sparse=self._sparse,
        )

    @property
    def window(self) -> int:
        return self._window

    @property
    def tokenizer(self) -> WordTokenizer:
        return self._tokenizer

    def tokenize(self, texts: Sequence[str], role: Role) -> list[TokenIds]:
        batch = []
        for text in texts:
            words = [text[a:b].lower() for a, b in self._tokenizer.spans(text)]
            batch.append([_BEGIN[role], *map(self._id, words), _END])
            if len(batch[-1]) > self._window:
                detail = f"a text of {len(batch[-1])} tokens does not fit the window of {self._window}"
                raise InvalidInput(detail, field="text", limit=self._window)
        return batch

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        if self.before_encode is not None:
            self.before_encode(batch)
        self.batches.append([list(ids) for ids in batch])
        bags = [Counter(i for i in ids if i >= _FIRST_WORD) for ids in batch]
        dense = np.zeros((len(bags), self._dimension), np.float32)
        for row, bag in zip(dense, bags, strict=True):
            self._fill(row, bag)
        sparse = tuple({word: float(n) for word, n in bag.items()} for bag in bags) if self._sparse else None
        return Embeddings(dense=dense, sparse=sparse)

    def _id(self, word: str) -> int:
        return _FIRST_WORD + zlib.crc32(f"{self._weights}:{word}".encode("utf-8", "surrogatepass")) % 1_000_000

    def _fill(self, row: np.ndarray[tuple[int], np.dtype[np.float32]], bag: Counter[int]) -> None:
        for word, n in bag.items():
            for salt in range(4):
                number = zlib.crc32(f"{salt}:{word}".encode())
                row[number % self._dimension] += n if number & 1 << 20 else -n
        length = float(np.linalg.norm(row))
        if length == 0:
            row[0] = length = 1.0
        row /= length
