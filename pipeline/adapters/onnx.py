"""The encoder for machines without a GPU: an ONNX graph run by onnxruntime."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from pipeline.adapters.tokens import TextTokenizer, check_lengths, padded
from pipeline.errors import InvalidInput, OutOfMemory
from pipeline.fingerprint import Space, digest
from pipeline.ports import Embeddings, Floats, Role, TokenIds


@dataclass(frozen=True, kw_only=True)
class _About:
    """``model.json``: what a directory says of its model."""

    model: str
    dimension: int
    window: int
    pooling: str
    query_prefix: str
    passage_prefix: str
    precision: str
    weights: str

    @classmethod
    def read(cls, directory: Path) -> _About:
        raw: dict[str, Any] = json.loads((directory / "model.json").read_text("utf-8"))
        if raw["pooling"] not in {"mean", "cls"}:
            raise InvalidInput(f"{directory}: pooling {raw['pooling']!r} is neither mean nor cls", field="pooling")
        return cls(
            model=raw.get("name") or str(directory),
            dimension=raw["dimension"],
            window=raw["window"],
            pooling=raw["pooling"],
            query_prefix=raw.get("query_prefix", ""),
            passage_prefix=raw.get("passage_prefix", ""),
            precision=raw.get("precision", "fp32"),
            weights=raw.get("weights") or _weights(directory),
        )

    def prefix(self, role: Role) -> str:
        return self.query_prefix if role is Role.QUERY else self.passage_prefix


class OnnxEmbedder:
    """Runs ``model.onnx`` of a directory that also holds ``tokenizer.json`` and ``model.json``.

    Vectors: float32 [n, dimension], unit rows. The graph takes ``input_ids`` and ``attention_mask``
    (and ``token_type_ids``) and gives hidden states [n, length, width] first. ``dimension`` keeps the
    first so many numbers and normalises again; ``threads`` 0 means every core this process may use.
    """

    def __init__(self, model_dir: Path, *, dimension: int | None = None, threads: int = 0) -> None:
        self._dir = model_dir
        self._about = _About.read(model_dir)
        self._threads = threads or len(os.sched_getaffinity(0))
        self._dimension = self._about.dimension if dimension is None else dimension
        if not 1 <= self._dimension <= self._about.dimension:
            limit = self._about.dimension
            raise InvalidInput(f"dimension must be 1 to {limit}, not {dimension}", field="dimension", limit=limit)
        self._tokenizer = TextTokenizer.from_file(model_dir / "tokenizer.json", self._about.passage_prefix)
        self._session: onnxruntime.InferenceSession | None = None
        self._loading = threading.Lock()

    @property
    def space(self) -> Space:
        """What its numbers are comparable with."""
        return Space(
            embedder="onnx",
            model=self._about.model,
            weights=self._about.weights,
            dimension=self._dimension,
            pooling=self._about.pooling,
            normalised=True,
            query_prefix=self._about.query_prefix,
            passage_prefix=self._about.passage_prefix,
            precision=self._about.precision,
        )

    @property
    def window(self) -> int:
        """The most tokens of one input, prefix and special tokens included."""
        return self._about.window

    @property
    def tokenizer(self) -> TextTokenizer:
        """Usable without loading the weights."""
        return self._tokenizer

    def tokenize(self, texts: Sequence[str], role: Role) -> list[TokenIds]:
        """Token ids with prefix and special tokens; raises InvalidInput for a text beyond the window."""
        prefix = self._about.prefix(role)
        batch = self._tokenizer.ids(texts, prefix)
        check_lengths(batch, self.window)
        return batch

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        """One forward pass in the order given; a row does not depend on its neighbours.

        Raises InvalidInput for an empty or over-long row, OutOfMemory when a smaller batch may pass.
        """
        check_lengths(batch, self.window)
        if not batch:
            return Embeddings(dense=np.empty((0, self._dimension), np.float32))
        ids, mask = padded(batch)
        return Embeddings(dense=self._pool(self._run(ids, mask), mask))

    def _run(self, ids: Any, mask: Any) -> Floats:
        session = self._loaded()
        offered = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {given.name: offered[given.name] for given in session.get_inputs()}
        try:
            hidden: Floats = session.run([session.get_outputs()[0].name], feed)[0]
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error
        except Exception as error:  # onnxruntime has no class of its own for this
            if _is_allocation_failure(error):
                raise OutOfMemory(str(error)) from error
            raise
        return hidden

    def _pool(self, hidden: Floats, mask: Any) -> Floats:
        if self._about.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            # A sum has the direction of the mean, and only the direction stays.
            pooled = np.matmul(mask[:, None].astype(np.float32), hidden)[:, 0]
        pooled = pooled[:, : self._dimension]
        norms = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.ascontiguousarray(pooled / norms, dtype=np.float32)

    def _loaded(self) -> onnxruntime.InferenceSession:
        with self._loading:
            if self._session is None:
                path = str(self._dir / "model.onnx")
                self._session = onnxruntime.InferenceSession(path, self._options(), ["CPUExecutionProvider"])
            return self._session

    def _options(self) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Spinning threads would burn the cores of everything else on the machine between two batches.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Memory patterns are kept for every shape ever seen, and nearly every batch has a new one.
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        return options


def _is_allocation_failure(error: Exception) -> bool:
    said = str(error).lower()
    return any(sign in said for sign in ("bad_alloc", "bad allocation", "failed to allocate", "out of memory"))


def _weights(directory: Path) -> str:
    """A directory that names no weights is known by its bytes, external tensor files included."""
    hashes = []
    for path in sorted([*directory.glob("model.onnx*"), directory / "tokenizer.json"]):
        with path.open("rb") as handle:
            hashes.append(hashlib.file_digest(handle, "sha256").hexdigest())
    return digest(*hashes)
