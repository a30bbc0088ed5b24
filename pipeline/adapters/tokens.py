"""What both encoders share: a ``tokenizers`` tokenizer behind the port, and batches of token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from pipeline.errors import InvalidInput
from pipeline.ports import TokenIds

_CHUNK = 1 << 16


class TextTokenizer:
    """Thread-safe; offsets are indices into the Python string. Special tokens spelled out in a text are text."""

    def __init__(self, backend: Backend, passage_prefix: str) -> None:
        self._backend = backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = True
        self._prefix = passage_prefix

    @classmethod
    def from_file(cls, path: Path, passage_prefix: str) -> TextTokenizer:
        """Reads a ``tokenizer.json``."""
        return cls(Backend.from_file(str(path)), passage_prefix)

    def ids(self, texts: Sequence[str], prefix: str) -> list[TokenIds]:
        """Token ids with prefix and special tokens, of any length; raises InvalidInput for lone surrogates."""
        for text in texts:
            _check_encodable(text)
        return [encoding.ids for encoding in self._backend.encode_batch_fast([prefix + text for text in texts])]

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a passage: prefix and special tokens included."""
        return [len(ids) for ids in self.ids(texts, self._prefix)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Offsets in order, never overlapping; several tokens of one character leave some of them empty."""
        _check_encodable(text)
        found: list[tuple[int, int]] = []
        for start, end in _chunks(text):
            encoding = self._backend.encode(text[start:end], add_special_tokens=False)
            found.extend((start + a, start + b) for a, b in encoding.offsets)
        found.append((len(text), len(text)))
        return [(start, max(start, min(end, following[0]))) for (start, end), following in pairwise(found)]


def check_lengths(batch: Sequence[TokenIds], window: int) -> None:
    """Raises InvalidInput for a row that is empty or longer than the window: nothing is ever cut."""
    for ids in batch:
        if not ids:
            raise InvalidInput("a text without tokens cannot be encoded", field="text")
        if len(ids) > window:
            detail = f"a text of {len(ids)} tokens does not fit the model's window of {window}"
            raise InvalidInput(detail, field="text", limit=window)


def padded(batch: Sequence[TokenIds], pad: int = 0) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ids and mask, both int64 [n, longest]; rows are padded at their end."""
    lengths = np.array([len(ids) for ids in batch])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad, np.int64)
    ids[mask] = np.concatenate(batch)
    return ids, mask.astype(np.int64)


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Pieces of about 64 Ki characters: the tokenizer's working memory is many times its input.

    They end before white space, where no token crosses; a longer run without any is cut where it is.
    """
    start = 0
    while start < len(text):
        end = _cut(text, start)
        yield start, end
        start = end


def _cut(text: str, start: int) -> int:
    limit = start + _CHUNK
    if limit >= len(text):
        return len(text)
    for at in range(limit, start + _CHUNK // 2, -1):
        if text[at].isspace() and not text[at - 1].isspace():
            return at
    return limit


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"character {error.start} is a lone surrogate and no character at all"
        raise InvalidInput(detail, field="text") from error
