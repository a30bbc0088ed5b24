"""From labelled evidence to a map: logistic, judged on documents that took no part in its fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.relevance import LogisticCalibration, Thresholds

FEATURES = (
    "dense",
    "dense_margin",
    "dense_gap",
    "dense_rank",
    "cover_root",
    "lexical_ratio",
    "lexical_margin",
    "lexical_strength",
    "lexical_rank",
    "agreement",
    "fusion_gap",
)
# ``dense`` is comparable in one space only: a map for any space (the shipped one) goes without.
PORTABLE_FEATURES = FEATURES[1:]
FOLDS = 4
# Three answerable questions for two that are not. With two for one, more than a twentieth of the questions whose
# documents were removed came back HIGHLY_RELEVANT (CMRC 2018: 5.4 % against 4.5 %, and 93.9 % against 92.8 % found).
ANSWERABLE_SHARE = 0.6
# A label that a person gave says more than one that was made.
FEEDBACK_WEIGHT = 2.0
LEAST_OF_EACH = 10


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The best candidate of one question. ``right``: it answers; ``answerable``: the answer was there to be found.

    ``fold``: questions of one fold were made from documents that no other fold's were made from.
    """

    features: Mapping[str, float]
    right: bool
    answerable: bool
    fold: int = 0
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """``model`` is what :func:`pipeline.relevance.calibration_of` reads; ``figures`` come from held-out folds."""

    model: dict[str, Any]
    figures: dict[str, Any]


def fit(
    evidence: Sequence[Evidence],
    thresholds: Thresholds | None = None,
    names: Sequence[str] = FEATURES,
) -> Fitted:
    """A map over all evidence, and the figures of maps that were fitted without the fold they are judged on.

    Raises PipelineError when there is too little of either kind.
    """
    kinds = np.array([e.right for e in evidence], dtype=bool)
    if min(kinds.sum(), (~kinds).sum()) < LEAST_OF_EACH:
        raise PipelineError(f"{len(evidence)} labels, {int(kinds.sum())} of them positive, are too few to fit a map")
    relevance = np.zeros(len(evidence))
    folds = np.array([e.fold for e in evidence])
    for fold in sorted(set(folds.tolist())):
        rest = [e for e in evidence if e.fold != fold]
        judged = [i for i, e in enumerate(evidence) if e.fold == fold]
        if len({e.right for e in rest}) < 2:
            continue
        map_ = logistic(rest, names)
        relevance[judged] = [map_.relevance(evidence[i].features) for i in judged]
    return Fitted(model=to_json(logistic(evidence, names)), figures=_figures(evidence, relevance, thresholds))


def logistic(evidence: Sequence[Evidence], names: Sequence[str] = FEATURES) -> LogisticCalibration:
    """The map alone."""
    from sklearn.linear_model import LogisticRegression  # a second to import: only whoever fits pays

    table = np.array([[e.features.get(n, np.nan) for n in names] for e in evidence], dtype=np.float64)
    seen = [n for n, column in zip(names, table.T, strict=True) if not np.isnan(column).all()]
    table = table[:, [n in seen for n in names]]
    mean, scale = np.nanmean(table, axis=0), np.maximum(np.nanstd(table, axis=0), 1e-6)
    standard = np.nan_to_num((table - mean) / scale)
    labels = np.array([e.right for e in evidence])
    model = LogisticRegression(C=1.0, max_iter=1000).fit(standard, labels, sample_weight=_weights(evidence))
    return LogisticCalibration(
        features=tuple(seen),
        mean=_rounded(mean),
        scale=_rounded(scale),
        weights=_rounded(model.coef_[0]),
        bias=round(float(model.intercept_[0]), 6),
    )


def to_json(map_: LogisticCalibration) -> dict[str, Any]:
    """What the ``model`` column holds."""
    return {
        "kind": map_.kind,
        "features": list(map_.features),
        "mean": list(map_.mean),
        "scale": list(map_.scale),
        "weights": list(map_.weights),
        "bias": map_.bias,
    }


def _weights(evidence: Sequence[Evidence]) -> npt.NDArray[np.float64]:
    answerable = np.array([e.answerable for e in evidence])
    weights = np.array([e.weight for e in evidence])
    for kind, share in ((answerable, ANSWERABLE_SHARE), (~answerable, 1 - ANSWERABLE_SHARE)):
        if kind.any():
            weights[kind] *= share * len(evidence) / weights[kind].sum()
    return weights


def _rounded(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(v), 6) for v in values)


def _figures(
    evidence: Sequence[Evidence], relevance: npt.NDArray[np.float64], thresholds: Thresholds | None
) -> dict[str, Any]:
    bounds = thresholds or Thresholds()
    right = np.array([e.right for e in evidence])
    answerable = np.array([e.answerable for e in evidence])
    levels = {}
    for name, bound in (("HIGHLY_RELEVANT", bounds.highly_relevant), ("REFERENCE", bounds.reference)):
        taken = relevance >= bound
        levels[name] = {
            "from": bound,
            "precision": _share(right[taken & answerable]),
            "coverage": _share(taken[answerable]),
            "false_accepts": _share(taken[~answerable]),
        }
    return {
        "levels": levels,
        "labels": len(evidence),
        "positive": int(right.sum()),
        "unanswerable": int((~answerable).sum()),
    }


def _share(of: npt.NDArray[np.bool_]) -> float | None:
    return round(float(of.mean()), 4) if len(of) else None
