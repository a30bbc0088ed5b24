"""The encoder of the fault tests: fast, deterministic, and it breaks on marked words as real ones do.

Chosen by ``WELLHEAD_EMBEDDER=tests.faults.encoder:FaultEncoder``; the model's name says how slow it is:
``fault-20`` sleeps 20 ms a batch. Every batch is appended to ``WELLHEAD_FAULTS_ENCODED``, also that of a worker
which is killed before it commits: that is how recomputed passages are counted.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.fingerprint import Space
from pipeline.ports import Embeddings, Role, TokenIds
from tests.fakes import HashEmbedder

WINDOW = 512
PROBE = "wellhead"


class FaultEncoder(HashEmbedder):
    """A bag-of-words encoder that raises, exhausts memory, ends its process, hangs, or returns NaN on marked words."""

    def __init__(self, model: str = "fault-0", dimension: int | None = None) -> None:
        super().__init__(dimension=dimension or 64, window=WINDOW)
        self._model = model
        self._pause = float(model.rpartition("-")[2]) / 1000
        log = os.environ.get("WELLHEAD_FAULTS_ENCODED")
        self._log = None if log is None else Path(log)
        self._probe = self.tokenize([PROBE], Role.PASSAGE)[0]

    @property
    def space(self) -> Space:
        return Space(
            embedder="tests.faults.encoder:FaultEncoder",
            model=self._model,
            weights="fault",
            dimension=self._dimension,
            pooling="sum",
            normalised=True,
            query_prefix="",
            passage_prefix="",
            precision="fp32",
        )

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        time.sleep(self._pause)
        marks = {m for ids in batch for m in self._marks(ids)}
        if "exits" in marks:
            os._exit(9)
        if "hangs" in marks:
            time.sleep(3600)
        if "memory" in marks:
            raise MemoryError
        if "raises" in marks:
            raise ValueError("cannot digest this")
        made = super().encode(batch)
        self.batches.clear()
        for row, ids in zip(made.dense, batch, strict=True):
            if "nans" in self._marks(ids):
                row[:] = np.nan
        self._note(sum(ids != self._probe for ids in batch))
        return made

    def _marks(self, ids: TokenIds) -> list[str]:
        found = set(ids)
        return [m for m in ("exits", "hangs", "memory", "raises", "nans") if self._id(f"fault_{m}") in found]

    def _id(self, word: str) -> int:
        # Of a million ids, one of the 240 words of each document meets a mark's sooner or later.
        return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=6).digest())

    def _note(self, passages: int) -> None:
        if self._log is not None and passages:
            with self._log.open("a") as log:
                log.write(f"{passages}\n")
