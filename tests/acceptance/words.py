"""An encoder whose spaces are named by its model: ``words-a``, ``words-b-40`` (sleeps 40 ms a batch).

Every encoded passage is appended to ``WELLHEAD_FAULTS_ENCODED`` as ``model number-of-the-text``, also that of a
worker which is killed before it commits.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from pipeline.fingerprint import Space
from pipeline.ports import Embeddings, TokenIds
from tests.fakes import HashEmbedder

PASSAGE = 2


class Words(HashEmbedder):
    """Bags of words; another model is another space, with the same or another dimension."""

    def __init__(self, model: str, dimension: int | None = None) -> None:
        super().__init__(dimension=dimension or 64, weights=model)
        self._model = model
        last = model.rpartition("-")[2]
        self._pause = float(last) / 1000 if last.isdigit() else 0.0
        log = os.environ.get("WELLHEAD_FAULTS_ENCODED")
        self._log = None if log is None else Path(log)

    @property
    def space(self) -> Space:
        return Space(
            embedder="tests.acceptance.words:Words",
            model=self._model,
            weights=self._model,
            dimension=self._dimension,
            pooling="sum",
            normalised=True,
            query_prefix="",
            passage_prefix="",
            precision="fp32",
        )

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        time.sleep(self._pause)
        made = super().encode(batch)
        self.batches.clear()
        passages = [zlib.crc32(repr(ids).encode()) for ids in batch if ids[0] == PASSAGE]
        if self._log is not None and passages:
            with self._log.open("a") as log:
                log.write("".join(f"{self._model} {number}\n" for number in passages))
        return made
