"""Similarity, features, levels and maps."""

from __future__ import annotations

import pytest

from pipeline.errors import PipelineError
from pipeline.fusion import Candidate
from pipeline.ports import Hit, LegResults
from pipeline.relevance import (
    IdentityCalibration,
    Level,
    LexicalCalibration,
    LogisticCalibration,
    Thresholds,
    calibration_of,
    features,
    level_of,
    shipped_calibration,
    similarity,
    squared_l2,
)


@pytest.mark.parametrize(
    ("l2", "expected"), [(0, 1.0), (0.383, 0.8085), (0.5, 0.75), (0.6031, 0.6984), (1.0, 0.5), (2.0, 0), (3.7, 0)]
)
def test_similarity_is_the_original_table(l2, expected):
    assert round(similarity(l2), 4) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("cosine", [1.0, 0.8085, 0.5, 0.0, -1.0])
def test_similarity_of_the_squared_distance_is_the_cosine(cosine):
    assert similarity(squared_l2(cosine)) == pytest.approx(max(cosine, 0.0))


def test_bound_of_the_distance_is_a_setting():
    assert similarity(1.0, max_l2=4.0) == 0.75
    assert IdentityCalibration(max_l2=4.0).relevance({"dense": 0.5}) == 0.75


THRESHOLDS = Thresholds()


@pytest.mark.parametrize(
    ("relevance", "named", "precise", "degraded", "level"),
    [
        (0.75, False, False, False, Level.HIGHLY_RELEVANT),
        (0.7499, False, False, False, Level.REFERENCE),
        (0.5, False, False, False, Level.REFERENCE),
        (0.4999, False, False, False, None),
        (0.1, True, False, False, Level.REFERENCE),
        (0.1, True, True, False, Level.PRECISE),
        (0.9, True, False, False, Level.HIGHLY_RELEVANT),
        (0.99, False, False, True, Level.REFERENCE),
        (0.1, True, True, True, Level.PRECISE),
        (0.1, False, False, True, None),
    ],
)
def test_levels(relevance, named, precise, degraded, level):
    assert level_of(relevance, THRESHOLDS, named=named, precise=precise, degraded=degraded) is level


def test_thresholds_are_settings():
    strict = Thresholds(highly_relevant=0.9, reference=0.8)
    assert level_of(0.85, strict, named=False, precise=False, degraded=False) is Level.REFERENCE
    assert level_of(0.75, strict, named=False, precise=False, degraded=False) is None


def candidate(document: int, dense: float | None, lexical: float | None, score: float = 0.0) -> Candidate:
    return Candidate(document=document, version=1, dense=dense, lexical=lexical, score=score)


def legs(*dense: float) -> LegResults:
    hits = tuple(
        Hit(key=f"{i}.1.0", document=i, version=1, ordinal=0, domain="", hash="", start=0, end=1, headings=(), dense=d)
        for i, d in enumerate(dense)
    )
    return LegResults(dense=hits, lexical=hits)


def test_features_compare_the_first_with_the_next_five():
    ordered = [candidate(0, 0.9, 8.0, 2.0), candidate(1, 0.8, 4.0, 1.0), *(candidate(i, 0.7, 2.0) for i in range(2, 9))]
    found = features(ordered, legs(0.9, 0.8, 0.7), cover=0.6, idf=16.0)
    assert found["dense_margin"] == pytest.approx(0.9 - (0.8 + 4 * 0.7) / 5)
    assert found["dense_gap"] == pytest.approx(0.1)
    assert found["lexical_margin"] == pytest.approx((8 - (4 + 4 * 2) / 5) / 8)
    assert (found["lexical_ratio"], found["lexical_strength"], found["lexical_cover"]) == (1.0, 0.5, 0.6)
    assert (found["agreement"], found["fusion_gap"], found["dense_rank"]) == (1.0, 1.0, 1.0)


def test_features_of_a_candidate_that_a_leg_missed():
    found = features([candidate(0, None, 8.0), candidate(1, 0.8, None)], legs(0.8, 0.6), cover=0.5, idf=1.0)
    assert found["dense"] == 0.6
    assert found["dense_gap"] == pytest.approx(-0.2)
    assert (found["agreement"], found["lexical_ratio"], found["dense_rank"]) == (0.5, 1.0, 0.5)


def test_missing_leg_and_lone_candidate_leave_features_out():
    alone = features([candidate(0, 0.9, None)], LegResults(dense=legs(0.9).dense, lexical=None), cover=0.5, idf=1.0)
    assert set(alone) == {"lexical_cover", "cover_root", "dense", "dense_rank"}


def test_logistic_map_ignores_missing_features_and_stays_in_bounds():
    model = {"kind": "logistic", "features": ["a", "b"], "mean": [0, 1], "scale": [1, 2], "weights": [2, 4], "bias": 0}
    map_ = calibration_of(model, version=7)
    assert map_.version == 7
    assert map_.relevance({}) == 0.5
    assert map_.relevance({"a": 1.0}) == pytest.approx(0.8808, abs=1e-4)
    assert map_.relevance({"a": 1.0, "b": 0.0}) == 0.5
    assert 0 <= map_.relevance({"a": -1e9}) < 1e-9
    assert isinstance(map_, LogisticCalibration)


def test_unknown_map_is_refused():
    with pytest.raises(PipelineError, match="'magic'"):
        calibration_of({"kind": "magic"})


def test_without_vectors_the_share_of_the_question_counts():
    assert LexicalCalibration().relevance({"lexical_cover": 0.7, "lexical_ratio": 1.0}) == 0.7
    assert LexicalCalibration().relevance({"lexical_cover": 0.7}) == 0.0


def test_shipped_map_tells_a_clear_answer_from_noise():
    clear = {
        "dense_margin": 0.08, "dense_gap": 0.06, "dense_rank": 1, "cover_root": 0.95, "lexical_ratio": 1,
        "lexical_margin": 0.6, "lexical_strength": 0.9, "lexical_rank": 1, "agreement": 1, "fusion_gap": 2.5,
    }  # fmt: skip
    noise = {
        "dense_margin": 0.008, "dense_gap": 0.003, "dense_rank": 1, "cover_root": 0.39, "lexical_ratio": 0.7,
        "lexical_margin": 0.05, "lexical_strength": 0.15, "lexical_rank": 0.3, "agreement": 0.5, "fusion_gap": 0.2,
    }  # fmt: skip
    assert shipped_calibration().relevance(clear) >= 0.9
    nothing = noise | {
        "dense_margin": 0.0, "dense_gap": 0.0, "cover_root": 0.0, "lexical_margin": 0.0, "lexical_strength": 0.0,
        "agreement": 0.0, "fusion_gap": 0.0,
    }  # fmt: skip
    # Half of what people really ask shares as few words with its answer as the noise does: it is no answer, no more.
    assert shipped_calibration().relevance(noise) <= 0.4 < THRESHOLDS.reference
    assert shipped_calibration().relevance(nothing) <= 0.1
