"""How well repeats are told from look-alikes: fits the rule of ``pipeline.repeats`` and cross-validates it.

``python -m ops.bench.repeats --models DIR`` prints the figures and the weights of a fit on all pairs.
Three kinds of pairs: rephrasings, look-alikes of one domain (both hand-written, ``tests/quality/questions``), and
random pairs of different questions of one domain, which are what a session mostly asks.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pipeline.calibrate import median_cosine
from pipeline.documents import VersionText
from pipeline.front_matter import split_front_matter
from pipeline.fusion import DENSE_WEIGHT, LEXICAL_WEIGHT
from pipeline.packing import pack
from pipeline.ports import Embedder, Floats, Role
from pipeline.repeats import DEFAULT_RULE, FEATURES, closeness_of, features, probability
from pipeline.rules import passages_of
from pipeline.terms import query_terms, terms

QUESTIONS = Path(__file__).resolve().parents[2] / "tests" / "quality" / "questions"
REPEAT, LOOK_ALIKE, RANDOM = 1, 0, -1
SEEDS, FOLDS = 5, 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two questions of one domain and what they are to each other."""

    a: str
    b: str
    domain: str
    kind: int


def pairs() -> list[Pair]:
    """All hand-written pairs, and three random partners for each of them."""
    found = [
        Pair(a=raw["a"], b=raw["b"], domain=raw["domain"], kind=kind)
        for name, kind in (("repeats", REPEAT), ("different", LOOK_ALIKE))
        for raw in yaml.safe_load((QUESTIONS / f"{name}.yaml").read_text("utf-8"))
    ]
    by_domain = defaultdict(list)
    for pair in found:
        by_domain[pair.domain].append(pair)
    chosen = random.Random(0)
    others = [
        Pair(a=pair.a, b=other.b, domain=pair.domain, kind=RANDOM)
        for members in by_domain.values()
        for pair in members
        for other in chosen.sample(members, min(3, len(members)))
        if other is not pair
    ]
    return found + others


def encode(embedder: Embedder, texts: Sequence[str]) -> dict[str, Floats]:
    """Question → unit vector."""
    unique = sorted(set(texts))
    return {t: embedder.encode(embedder.tokenize([t], Role.QUERY)).dense[0] for t in unique}


def table(given: Sequence[Pair], vectors: dict[str, Floats]) -> np.ndarray:
    """The features of every pair, one row each."""
    return np.array(
        [
            features(p.b, p.a, closeness_of(float(np.dot(vectors[p.a], vectors[p.b])), DEFAULT_RULE.unrelated))
            for p in given
        ]
    )


def cross_validated(rows: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The probability of a repeat for every pair, by fits that have not seen it; mean over seeds."""
    total = np.zeros(len(kinds))
    for seed in range(SEEDS):
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(rows, kinds):
            total[test] += fitted(rows[train], kinds[train]).predict_proba(rows[test])[:, 1] / SEEDS
    return total


def fitted(rows: np.ndarray, kinds: np.ndarray):
    """The logistic, with the random pairs weighing as much together as the look-alikes."""
    weights = np.where(kinds == RANDOM, (kinds == LOOK_ALIKE).sum() / max(1, (kinds == RANDOM).sum()), 1.0)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, max_iter=3000))
    return model.fit(rows, kinds == REPEAT, logisticregression__sample_weight=weights)


def plain(model) -> tuple[float, list[float]]:
    """Bias and weights over raw features."""
    scaler, logistic = model.steps[0][1], model.steps[1][1]
    weights = logistic.coef_[0] / scaler.scale_
    return float(logistic.intercept_[0] - (weights * scaler.mean_).sum()), weights.tolist()


class Shelf:
    """A corpus in memory: which document answers a question best, by both legs fused as a lookup does."""

    def __init__(self, embedder: Embedder, documents: Sequence[VersionText], batch_tokens: int = 1024) -> None:
        cut = [(n, p) for n, d in enumerate(documents) for p in passages_of("r1:400", d, embedder.tokenizer)]
        self._document = [number for number, _ in cut]
        texts = [passage.text for _, passage in cut]
        ids = embedder.tokenize(texts, Role.PASSAGE)
        self._dense = np.zeros((len(texts), embedder.space.dimension), np.float32)
        for batch in pack([len(one) for one in ids], batch_tokens):
            self._dense[batch] = embedder.encode([ids[i] for i in batch]).dense
        self._counts = [Counter(terms(text)) for text in texts]
        self._lengths = np.array([sum(counts.values()) for counts in self._counts])
        self._holders = Counter(term for counts in self._counts for term in counts)

    def first(self, query: str, vector: Floats, count: int) -> list[int]:
        """The numbers of the best documents; scores are z-values over the fifty best passages of each leg."""
        dense, lexical = self._dense @ vector, self._bm25(query)
        chosen = np.union1d(np.argsort(-dense)[:50], np.argsort(-lexical)[:50])
        scores = DENSE_WEIGHT * _z(dense[chosen]) + LEXICAL_WEIGHT * _z(lexical[chosen])
        ordered = [self._document[int(i)] for i in chosen[np.argsort(-scores)]]
        return list(dict.fromkeys(ordered))[:count]

    def _bm25(self, query: str) -> np.ndarray:
        total, mean = len(self._counts), self._lengths.mean()
        scores = np.zeros(total)
        for term in set(query_terms(query)):
            idf = np.log(1 + (total - self._holders[term] + 0.5) / (self._holders[term] + 0.5))
            found = np.array([counts[term] for counts in self._counts], float)
            scores += idf * found * 2.2 / (found + 1.2 * (0.25 + 0.75 * self._lengths / mean))
        return scores


def _z(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean()) / (scores.std() + 1e-9)


def handed_out_before(shelf: Shelf, given: Sequence[Pair], vectors: dict[str, Floats]) -> np.ndarray:
    """Is the best document for the second question one of the two that answered the first?"""
    return np.array([shelf.first(p.b, vectors[p.b], 1)[0] in shelf.first(p.a, vectors[p.a], 2) for p in given])


def documents_of(roots: Sequence[Path]) -> list[VersionText]:
    """The Markdown files below some directories, with the title of their front matter."""
    found = []
    for path in sorted(p for root in roots for p in root.rglob("*.md") if p.name != "README.md"):
        fields, body = split_front_matter(path.read_text("utf-8"))
        found.append(VersionText(title=str(fields.get("title") or path.stem), body=body))
    return found


def shares(stopped: np.ndarray, kinds: np.ndarray) -> dict[str, float]:
    """How many of each kind were stopped."""
    names = {"repeats": REPEAT, "look_alikes": LOOK_ALIKE, "random": RANDOM}
    return {name: round(float(stopped[kinds == kind].mean()), 3) for name, kind in names.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path(".wellhead/models"))
    parser.add_argument("corpora", type=Path, nargs="*", help="directories of Markdown that the questions are about")
    arguments = parser.parse_args()
    from ops.bundled_model import ensure
    from pipeline.adapters.onnx import OnnxEmbedder

    embedder = OnnxEmbedder(ensure(arguments.models), threads=1)
    given = pairs()
    vectors = encode(embedder, [text for p in given for text in (p.a, p.b)])
    rows, kinds = table(given, vectors), np.array([p.kind for p in given])
    probabilities = cross_validated(rows, kinds)
    bias, weights = plain(fitted(rows, kinds))
    together: dict[str, object] = {}
    if arguments.corpora:
        shelf = Shelf(embedder, documents_of(arguments.corpora))
        seen = handed_out_before(shelf, given, vectors)
        together = {
            "best_document_was_handed_out": shares(seen, kinds),
            "stopped_by_either": shares(seen | (probabilities >= DEFAULT_RULE.threshold), kinds),
        }
    levels = (0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
    print(
        json.dumps(
            {
                "pairs": {str(k): int((kinds == k).sum()) for k in (REPEAT, LOOK_ALIKE, RANDOM)},
                "median_cosine_of_all_questions": round(median_cosine(np.array(list(vectors.values()))) or 0.0, 3),
                "stopped_cross_validated": {str(level): shares(probabilities >= level, kinds) for level in levels},
                "stopped_by_the_rule_in_use": shares(
                    np.array([probability(tuple(row)) for row in rows]) >= DEFAULT_RULE.threshold, kinds
                ),
                **together,
                "bias": round(bias, 3),
                "weights": {name: round(weight, 3) for name, weight in zip(FEATURES, weights, strict=True)},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
