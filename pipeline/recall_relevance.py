"""How good a recalled episode is: what both legs say, told in a level word. Pure.

The map is fitted on the conversations of ``tests/quality/episodes`` (``ops/bench/recall.py``), on those questions
with and without their episode, on halves and quarters of the set, and on 120 questions about other things. Its dense
features are in units of the spread of the question's own scores, so that it holds in spaces whose cosines crowd
together and in others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pstdev

from pipeline.fusion import Candidate
from pipeline.ports import LegResults
from pipeline.relevance import Calibration, Level, LexicalCalibration, LogisticCalibration, Thresholds
from pipeline.relevance import features as leg_features

# Below it an episode says nothing about the question; up to REFERENCE it is shown as weak, if there is room.
WEAK = 0.15
SPREAD_OVER = 20

MAP = LogisticCalibration(
    features=("margin", "gap", "lexical_cover", "agreement", "fusion_gap", "lexical_margin"),
    mean=(0.78819, 0.24208, 0.10278, 0.60292, 0.47819, 0.32433),
    scale=(0.89176, 0.92354, 0.17791, 0.28873, 0.55367, 0.3879),
    weights=(0.989, 1.3253, 1.0954, 0.1719, -0.1734, 0.368),
    bias=-2.2135,
)


def features(ordered: Sequence[Candidate], legs: LegResults, cover: float) -> dict[str, float]:
    """What is known of the first of ``ordered``; ``cover``: share of the question's words in its passages."""
    found = leg_features(ordered, legs, cover, idf=0.0)
    scores = [h.dense for h in legs.dense[:SPREAD_OVER] if h.dense is not None]
    spread = pstdev(scores) if len(scores) > 2 else 0.0
    if spread > 1e-9 and "dense_margin" in found:
        found |= {"margin": found["dense_margin"] / spread, "gap": found["dense_gap"] / spread}
    return found


def relevance(found: Mapping[str, float], legs: LegResults) -> float:
    """0…1; without the dense leg the share of the question's words that the episode holds."""
    map_: Calibration = MAP if legs.dense else LexicalCalibration()
    return map_.relevance(found)


def level(value: float, thresholds: Thresholds, *, exact: bool, alone: bool, degraded: bool) -> Level | None:
    """``exact``: it says every exact string of the question; ``alone``: no other episode does. That is a yes or no."""
    if exact:
        return Level.PRECISE if alone else Level.HIGHLY_RELEVANT
    if value >= thresholds.highly_relevant and not degraded:
        return Level.HIGHLY_RELEVANT
    return Level.REFERENCE if value >= thresholds.reference else None
