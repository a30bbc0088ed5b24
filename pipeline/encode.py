"""One batch through the encoder: memory halves it, any other error is bisected down to the one passage."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import InfrastructureDown, OutOfMemory
from pipeline.packing import pack
from pipeline.ports import Embedder, Floats, Role, TokenIds
from pipeline.vectors import check_vectors


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The outcome for one input: a vector, or the reason why there is none."""

    dense: Floats | None = None
    sparse: dict[int, float] | None = None
    error: str | None = None


def encode_batch(embedder: Embedder, batch: Sequence[TokenIds]) -> list[Encoded]:
    """One outcome per input, in order. Raises InfrastructureDown when the encoder itself is broken."""
    try:
        embeddings = embedder.encode(batch)
        verdicts = check_vectors(embeddings, len(batch), embedder.space.dimension)
    except InfrastructureDown:
        raise
    except Exception as error:
        if len(batch) > 1:
            half = len(batch) // 2
            return encode_batch(embedder, batch[:half]) + encode_batch(embedder, batch[half:])
        if not isinstance(error, OutOfMemory | MemoryError) and not encoder_answers(embedder):
            raise InfrastructureDown(f"the encoder fails on everything: {error}", part="encoder") from error
        return [Encoded(error=reason(error))]
    return [
        Encoded(
            dense=np.ascontiguousarray(embeddings.dense[i], dtype=np.float32) if verdict is None else None,
            sparse=None if embeddings.sparse is None else embeddings.sparse[i],
            error=verdict,
        )
        for i, verdict in enumerate(verdicts)
    ]


def encode_texts(embedder: Embedder, texts: Sequence[str], role: Role, batch_tokens: int = 1024) -> Floats:
    """float32 [len(texts), dimension], in token-budget batches. Raises what the encoder raises."""
    ids = embedder.tokenize(texts, role) if texts else []
    out = np.zeros((len(texts), embedder.space.dimension), np.float32)
    for batch in pack([len(i) for i in ids], batch_tokens):
        out[batch] = embedder.encode([ids[i] for i in batch]).dense
    return out


def encoder_answers(embedder: Embedder) -> bool:
    """The independent probe: does a text that nobody uploaded still get a proper vector?"""
    try:
        embeddings = embedder.encode(embedder.tokenize(["wellhead"], Role.PASSAGE))
        return check_vectors(embeddings, 1, embedder.space.dimension) == [None]
    except Exception:  # whatever it is, the encoder does not answer
        return False


def reason(error: BaseException) -> str:
    """The error and the traceback's last line: what a person who looks at a parked passage needs."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
