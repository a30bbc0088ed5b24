"""Every vector is checked before it is stored."""

from __future__ import annotations

import numpy as np

from pipeline.errors import BadVector
from pipeline.ports import Embeddings

NORM_TOLERANCE = 0.01


def check_vectors(embeddings: Embeddings, count: int, dimension: int) -> list[str | None]:
    """What is wrong with each row, or None; raises BadVector when the rows cannot even be told apart.

    One vector per input is required before any row is looked at: a short answer that is zipped by position
    would give the wrong text the wrong vector.
    """
    dense = embeddings.dense
    if dense.ndim != 2 or dense.shape[0] != count:
        raise BadVector(f"the encoder returned {dense.shape} for {count} inputs")
    if embeddings.sparse is not None and len(embeddings.sparse) != count:
        raise BadVector(f"the encoder returned {len(embeddings.sparse)} sparse rows for {count} inputs")
    if dense.shape[1] != dimension:
        raise BadVector(f"the encoder returned {dense.shape[1]} dimensions, the space has {dimension}")
    finite = np.atleast_1d(np.isfinite(dense).all(axis=1))
    with np.errstate(invalid="ignore"):
        unit = np.atleast_1d(np.abs(np.linalg.norm(dense, axis=1) - 1.0) <= NORM_TOLERANCE)
    return [_verdict(bool(finite[i]), bool(unit[i])) for i in range(count)]


def _verdict(finite: bool, unit: bool) -> str | None:
    if not finite:
        return "BadVector: the vector holds NaN or infinity"
    return None if unit else "BadVector: the vector is not of unit length"
