"""What the stages need from the outside world. Every port has a real and a fake implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.fingerprint import Space

Floats: TypeAlias = npt.NDArray[np.float32]
TokenIds: TypeAlias = list[int]


class Role(StrEnum):
    """Some models encode questions and passages differently."""

    QUERY = "query"
    PASSAGE = "passage"


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """``dense``: float32 [n, dimension], unit rows. ``sparse``: one token→weight map a row, or None."""

    dense: Floats
    sparse: tuple[dict[int, float], ...] | None = None


class Tokenizer(Protocol):
    """Counts and cuts text the way the model will."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets (start, end) of the tokens of ``text``, without special tokens."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a passage: prefix and special tokens included."""
        ...


class Embedder(Protocol):
    """One loaded model. ``tokenize`` may run beside ``encode`` in another thread."""

    @property
    def space(self) -> Space:
        """What its numbers are comparable with."""
        ...

    @property
    def window(self) -> int:
        """The most tokens of one input, prefix and special tokens included."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Usable without loading the weights."""
        ...

    def tokenize(self, texts: Sequence[str], role: Role) -> list[TokenIds]:
        """Token ids per text with prefix and special tokens; never cut: over-long raises InvalidInput."""
        ...

    def encode(self, batch: Sequence[TokenIds]) -> Embeddings:
        """One forward pass over the batch, in the order given.

        Raises OutOfMemory when a smaller batch may pass; any other error is the input's or the model's.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class VectorRow:
    """One passage as it lies in the vector store. ``key`` is ``{document}.{version}.{ordinal}``."""

    key: str
    tenant: str
    kind: str
    domain: str
    document: int
    version: int
    ordinal: int
    hash: str
    start: int
    end: int
    headings: tuple[str, ...]
    text: str
    dense: Floats
    sparse: dict[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What one search may see. ``tenant`` must not be empty: an empty scope is an error, not everything."""

    tenant: str
    kind: str
    domain: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One passage found. ``dense``: cosine in −1…1; ``lexical``: larger is better, ≥ 0; None: that leg missed it."""

    key: str
    document: int
    version: int
    ordinal: int
    domain: str
    hash: str
    start: int
    end: int
    headings: tuple[str, ...]
    dense: float | None = None
    lexical: float | None = None


@dataclass(frozen=True, kw_only=True)
class LegResults:
    """Both legs of one search, each best first. ``lexical`` is None where the store has no lexical leg.

    Lexical hits carry their dense score, too, when there was a vector to compare: to count a passage that only the
    words found as the farthest of all put a wrong document first for 11 of 97 questions (``ops/bench/quality.py``).
    """

    dense: tuple[Hit, ...]
    lexical: tuple[Hit, ...] | None


@dataclass(frozen=True, kw_only=True)
class QueryVector:
    """An encoded question and the space it belongs to."""

    space: str
    dense: Floats
    sparse: dict[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class CollectionSpec:
    """One generation's collection. ``space`` is ``Space.name``; ``sparse``: the model brings its own lexical leg."""

    name: str
    space: str
    dimension: int
    sparse: bool = False
    schema_version: int = 1


class VectorStore(Protocol):
    """Vectors of one generation in one collection, written and read by passage key."""

    def create(self, spec: CollectionSpec) -> None:
        """Create and load the collection; the same spec again is a no-op, another one under that name an error."""
        ...

    def upsert(self, spec: CollectionSpec, rows: Sequence[VectorRow]) -> None:
        """Write rows, replacing those of the same key. Raises CollectionGone, BadVector, InfrastructureDown."""
        ...

    def fetch(self, spec: CollectionSpec, keys: Sequence[str], *, vectors: bool = False) -> dict[str, StoredRow]:
        """The rows that exist among ``keys``, read with Strong consistency."""
        ...

    def delete(self, spec: CollectionSpec, keys: Sequence[str]) -> None:
        """Delete by primary key; missing keys are no error."""
        ...

    def search(
        self, spec: CollectionSpec, query: QueryVector | None, text: str, scope: Scope, limit: int
    ) -> LegResults:
        """Dense and lexical search; ``query=None`` leaves the dense leg out. Raises WrongSpace, CollectionGone."""
        ...

    def admin(self) -> VectorStoreAdmin:
        """The maintenance side: pages, counts, drops."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredRow:
    """What the store says of one key. ``dense``/``sparse`` only when asked for."""

    key: str
    hash: str
    dense: Floats | None = None
    sparse: dict[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """What the server is and can do. ``lexical``: has a BM25 leg; ``problems``: sentences for ``doctor``."""

    version: str
    lexical: bool
    lite: bool
    problems: tuple[str, ...] = field(default=())


class VectorStoreAdmin(Protocol):
    """Maintenance of the vector store: used by sweeps, reconcile and doctor, never by a lookup."""

    def info(self) -> StoreInfo:
        """Asks the server's version; raises InfrastructureDown."""
        ...

    def probe_metric(self) -> None:
        """Stores and searches four known vectors; raises PipelineError when the answers are not IP/L2² ones."""
        ...

    def collections(self) -> list[str]:
        """The names of the collections that exist."""
        ...

    def keys(self, name: str, page: int = 1000) -> Iterator[list[str]]:
        """All primary keys of a collection, in pages."""
        ...

    def count(self, name: str) -> int:
        """Exact number of rows, Strong."""
        ...

    def drop(self, name: str) -> None:
        """Drop the collection; a missing one is no error."""
        ...
