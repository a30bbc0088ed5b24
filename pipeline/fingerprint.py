"""Identities: same input, same id, for ever."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any


def digest(*parts: object) -> str:
    """Hex SHA-256 over the canonical JSON of the parts; no two different inputs share one."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Space:
    """Which numbers are comparable: two vectors of one space may be compared, others never.

    ``embedder`` and ``model`` say how to load the encoder again; everything that changes a number
    is part of the name.
    """

    embedder: str
    model: str
    weights: str
    dimension: int
    pooling: str
    normalised: bool
    query_prefix: str
    passage_prefix: str
    precision: str
    sparse: bool = False

    @property
    def name(self) -> str:
        """Short, stable and unique, e.g. ``multilingual-e5-small:384:5f0c…``."""
        # The path a model was loaded from is not part of what it computes.
        content = {k: v for k, v in asdict(self).items() if k not in {"embedder", "model"}}
        label = self.model.rstrip("/").rsplit("/", 1)[-1]
        return f"{label}:{self.dimension}:{digest(content)[:12]}"

    def to_json(self) -> dict[str, Any]:
        """The form kept on the generation row."""
        return asdict(self)


def fingerprint(space: Space, rule: str) -> str:
    """What a vector was made with: ``{space}|{rule}``."""
    return f"{space.name}|{rule}"


def passage_key(document: int, version: int, ordinal: int) -> str:
    """The Milvus primary key: a late worker can write a dead version, never over a newer one."""
    return f"{document}.{version}.{ordinal}"


def parse_passage_key(key: str) -> tuple[int, int, int]:
    """The inverse of :func:`passage_key`."""
    document, version, ordinal = key.split(".")
    return int(document), int(version), int(ordinal)
