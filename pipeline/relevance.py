"""How good an answer is: features → relevance in 0…1 → a level in words. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, Protocol

from pipeline.errors import PipelineError
from pipeline.fusion import Candidate
from pipeline.ports import LegResults

NEXT = 5


class Level(StrEnum):
    """What a lookup's answer is worth. Nothing found has no level."""

    PRECISE = "PRECISE"
    HIGHLY_RELEVANT = "HIGHLY_RELEVANT"
    REFERENCE = "REFERENCE"
    DEDUPED = "DEDUPED"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From which relevance on an answer is called what. ``max_l2`` bounds the squared distance."""

    max_l2: float = 2.0
    highly_relevant: float = 0.75
    reference: float = 0.5


def squared_l2(inner_product: float) -> float:
    """The squared distance of two unit vectors, 0…4; what Milvus calls ``L2``."""
    return 2.0 - 2.0 * inner_product


def similarity(l2: float, max_l2: float = 2.0) -> float:
    """``1 − min(l2, max)/max``: with the default bound exactly ``max(cosine, 0)``."""
    return 1.0 - min(max(l2, 0.0), max_l2) / max_l2


class Calibration(Protocol):
    """A generation's map from features to relevance. ``version`` None: none was fitted for it."""

    @property
    def kind(self) -> str:
        """identity, logistic, …"""
        ...

    @property
    def version(self) -> int | None:
        """The row of the ``calibration`` table it comes from."""
        ...

    def relevance(self, features: Mapping[str, float]) -> float:
        """0…1. A feature that could not be had is missing from the map."""
        ...


@dataclass(frozen=True, kw_only=True)
class IdentityCalibration:
    """The original's table: similarity is relevance."""

    max_l2: float = 2.0
    kind: str = "identity"
    version: int | None = None

    def relevance(self, features: Mapping[str, float]) -> float:
        """The similarity of the dense leg; without it, the share of the question that the passage holds."""
        if "dense" not in features:
            return features.get("lexical_cover", 0.0)
        return similarity(squared_l2(features["dense"]), self.max_l2)


@dataclass(frozen=True, kw_only=True)
class LogisticCalibration:
    """A logistic map over standardised features; a missing feature counts as its mean."""

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    kind: str = "logistic"
    version: int | None = None

    def relevance(self, features: Mapping[str, float]) -> float:
        """The probability that the candidate answers the question."""
        z = self.bias
        for name, mean, scale, weight in zip(self.features, self.mean, self.scale, self.weights, strict=True):
            if name in features:
                z += weight * (features[name] - mean) / scale
        return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, z))))


@dataclass(frozen=True, kw_only=True)
class LexicalCalibration:
    """For a question that could not be encoded: the share of its weight that the passage holds."""

    kind: str = "lexical"
    version: int | None = None

    def relevance(self, features: Mapping[str, float]) -> float:
        """0…1, zero when the lexical leg did not find the candidate."""
        return features.get("lexical_cover", 0.0) if "lexical_ratio" in features else 0.0


def calibration_of(model: Mapping[str, Any], version: int | None = None, max_l2: float = 2.0) -> Calibration:
    """The map that a ``calibration.model`` holds. Raises PipelineError for a kind this code does not have."""
    kind = model.get("kind")
    if kind == "identity":
        return IdentityCalibration(max_l2=max_l2, version=version)
    if kind == "logistic":
        return LogisticCalibration(
            features=tuple(model["features"]),
            mean=tuple(model["mean"]),
            scale=tuple(model["scale"]),
            weights=tuple(model["weights"]),
            bias=model["bias"],
            version=version,
        )
    raise PipelineError(f"there is no calibration of kind {kind!r}")


@cache
def shipped_file() -> dict[str, Any]:
    """``shipped_calibration.json``: the map, what it was fitted on, and its figures."""
    found: dict[str, Any] = json.loads(files("pipeline").joinpath("shipped_calibration.json").read_text("utf-8"))
    return found


@cache
def shipped_calibration() -> Calibration:
    """The map used until a generation has one of its own: fitted on multilingual-e5-small (the file says how)."""
    return calibration_of(shipped_file()["model"])


def features(ordered: Sequence[Candidate], legs: LegResults, cover: float, idf: float) -> dict[str, float]:
    """What is known of the first of ``ordered`` (fused order), given the others.

    ``cover``: share of the question's IDF in its passages and title; ``idf``: the whole IDF of the question.
    No feature depends on the number of documents: a z-score within the question would drift when half of the
    corpus goes.
    """
    first, others = ordered[0], ordered[1:]
    # The root: the step from no word in common to some says more than that from most to all, and a map that was
    # fitted on questions made of a document's own words would ask too much of those that people ask.
    found = {"lexical_cover": cover, "cover_root": math.sqrt(cover)}
    if others:
        found["fusion_gap"] = first.score - others[0].score
    if legs.dense:
        found |= _dense(first, others, floor=min(h.dense or 0.0 for h in legs.dense))
    if legs.lexical:
        found |= _lexical(first, others, idf)
    if legs.dense and legs.lexical:
        found["agreement"] = (_rank(first, others, "dense") == 1) / 2 + (_rank(first, others, "lexical") == 1) / 2
    return found


def _dense(first: Candidate, others: Sequence[Candidate], floor: float) -> dict[str, float]:
    # A candidate that the leg missed is at most as near as the last passage found.
    own = floor if first.dense is None else first.dense
    rest = sorted((floor if c.dense is None else c.dense for c in others), reverse=True)
    found = {"dense": own, "dense_rank": 1.0 / _rank(first, others, "dense")}
    if rest:
        found |= {"dense_margin": own - fmean(rest[:NEXT]), "dense_gap": own - rest[0]}
    return found


def _lexical(first: Candidate, others: Sequence[Candidate], idf: float) -> dict[str, float]:
    own = first.lexical or 0.0
    rest = sorted((c.lexical or 0.0 for c in others), reverse=True)
    best = max([own, *rest[:1]]) or 1.0
    found = {
        "lexical_ratio": own / best,
        "lexical_rank": 1.0 / _rank(first, others, "lexical"),
        "lexical_strength": min(3.0, own / idf) if idf else 0.0,
    }
    if rest:
        found["lexical_margin"] = (own - fmean(rest[:NEXT])) / best
    return found


def _rank(first: Candidate, others: Sequence[Candidate], leg: str) -> int:
    own = getattr(first, leg)
    scores = [s for c in others if (s := getattr(c, leg)) is not None]
    return len(scores) + 1 if own is None else 1 + sum(s > own for s in scores)


def level_of(relevance: float, thresholds: Thresholds, *, named: bool, precise: bool, degraded: bool) -> Level | None:
    """The level of one candidate, or None when it is no answer.

    ``named``: L0 names it, which is never below REFERENCE; ``precise``: L0 names it alone and means it.
    While a part is down an answer is at most REFERENCE, unless L0 is certain.
    """
    if precise:
        return Level.PRECISE
    if relevance >= thresholds.highly_relevant and not degraded:
        return Level.HIGHLY_RELEVANT
    return Level.REFERENCE if named or relevance >= thresholds.reference else None
