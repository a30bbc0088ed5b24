"""How good are answers, and do the levels mean what they say? Five corpora mixed in one.

    python -m ops.bench.quality --models .wellhead/models [--cache vectors.npz] [--kept-only] [--write-shipped]

Real questions judge: people's own of CMRC 2018 (trial set) and the hand-written ones of ``tests/quality/questions``,
asked as they are, with a quarter of the documents gone, with half of them gone, and with their own document gone.
Maps are fitted on questions that the corpus makes about itself (:mod:`pipeline.pseudo_questions`). The shipped map
also takes the hand-written ones: its figures on them come from folds that took no part.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ops.bench.mixed_corpus import SHARED, Asked, KeptVectors, MixedCorpus, cmrc_questions, documents_of, own_questions
from pipeline.adapters.onnx import OnnxEmbedder
from pipeline.assess import assess, excerpt_places, rank
from pipeline.calibrate import evidence_of
from pipeline.documents import Upload, VersionText
from pipeline.fitting import FOLDS, PORTABLE_FEATURES, Evidence, fit, logistic
from pipeline.fusion import fold
from pipeline.keyword_index import Named
from pipeline.ports import Role
from pipeline.pseudo_questions import Source, make_questions, segment_words
from pipeline.relevance import Calibration, IdentityCalibration, Thresholds, shipped_calibration
from pipeline.rules import passages_of
from pipeline.terms import TermStatistics

CORPORA = ("cmrc2018", "runbooks-en", "runbooks-zh", "glossary-zh", "tidb-zh")
NONE: frozenset[int] = frozenset()
# A hand-written question weighs as much as four made ones in the shipped map: people ask in their own words.
WRITTEN_WEIGHT = 4.0


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The best answer to one question. ``gap``: its fused score over the best wrong one's, when it is right."""

    asked: Asked
    features: dict[str, float]
    right: bool
    right3: bool
    gap: float | None


class Bench:
    """One corpus and its term statistics; questions are asked of it."""

    def __init__(self, corpus: MixedCorpus) -> None:
        self.corpus = corpus
        self.statistics = TermStatistics.of(corpus.bodies().values())
        self.number = {u.key: n for n, u in enumerate(corpus.uploads)}

    def ask(self, asked: Asked, removed: frozenset[int] = NONE) -> Judged | None:
        """The way of a lookup without names; ``removed`` documents are not there."""
        legs = self.corpus.search(asked.text, self.corpus.vector(asked.text), removed)
        candidates = fold(legs)
        ranked = rank(candidates, self.corpus.live({c.document for c in candidates}), Named(), frozenset())
        if not ranked.ordered:
            return None
        found = assess(
            ranked, legs, self.corpus.excerpts(excerpt_places(ranked, 2000)), asked.text, self.statistics,
            IdentityCalibration(), Thresholds(), degraded=False,
        )  # fmt: skip
        right = [self.corpus.uploads[c.document].key in asked.answers for c in ranked.ordered]
        wrong = [c.score for c, ok in zip(ranked.ordered, right, strict=True) if not ok]
        gap = ranked.ordered[0].score - wrong[0] if right[0] and wrong else None
        return Judged(asked=asked, features=dict(found[0].features), right=right[0], right3=any(right[:3]), gap=gap)

    def ask_all(self, questions: Sequence[Asked], removed=None) -> list[Judged]:
        """``removed``: a function of the question."""
        found = (self.ask(q, NONE if removed is None else removed(q)) for q in questions)
        return [j for j in found if j is not None]

    def evidence(self, count: int) -> list[Evidence]:
        """Labels that the corpus makes itself, the way the stage makes them of the live store."""
        uploads = enumerate(self.corpus.uploads)
        sources = [Source(document=n, title=u.title, body=u.body or "") for n, u in uploads]
        made = make_questions(sources, self.statistics, segment_words, count)
        self.corpus.encode([q.text for q in made], Role.QUERY)
        found = []
        for question in made:
            legs = self.corpus.search(question.text, self.corpus.vector(question.text))
            found += evidence_of(question, legs, self.corpus, self.statistics)
        return found

    def own(self, asked: Asked) -> frozenset[int]:
        """The documents that answer it."""
        return frozenset(self.number[k] for k in asked.answers if k in self.number)

    def fold_of(self, asked: Asked) -> frozenset[int]:
        """The quarter of the documents that an answer is in."""
        folds = {n % FOLDS for n in self.own(asked)}
        return frozenset(n for n in range(len(self.corpus.uploads)) if n % FOLDS in folds)


def shares(judged: Sequence[Judged], map_: Calibration, *, answerable: bool) -> dict:
    """Per level: coverage and precision, or false accepts."""
    if not judged:
        raise SystemExit("no question was asked: nothing was measured")
    relevance = np.array([map_.relevance(j.features) for j in judged])
    right = np.array([j.right for j in judged])
    found: dict = {"questions": len(judged)}
    for name, bound in (("HIGHLY_RELEVANT", 0.75), ("REFERENCE", 0.5)):
        taken = relevance >= bound
        found[name] = round(float(taken.mean()), 4)
        if answerable:
            found[f"precision {name}"] = round(float(right[taken].mean()), 4) if taken.any() else None
    return found


def ranking(judged: Sequence[Judged]) -> dict:
    """Recall and score gaps, whole and per origin."""
    if not judged:
        raise SystemExit("no question was asked: nothing was measured")
    gaps = sorted(j.gap for j in judged if j.gap is not None)
    origins = Counter(j.asked.origin for j in judged)
    return {
        "questions": len(judged),
        "recall@1": round(sum(j.right for j in judged) / len(judged), 4),
        "recall@3": round(sum(j.right3 for j in judged) / len(judged), 4),
        "gap p10": round(float(np.percentile(gaps, 10)), 3) if gaps else None,
        "gap p50": round(float(np.percentile(gaps, 50)), 3) if gaps else None,
        "recall@1 by origin": {
            o: round(sum(j.right for j in judged if j.asked.origin == o) / n, 3) for o, n in origins.items()
        },
    }


@dataclass(frozen=True, kw_only=True)
class Sets:
    """All questions asked once; every map is judged on the same answers."""

    cmrc: list[Judged]
    cmrc_quarter: list[Judged]
    cmrc_half_there: list[Judged]
    cmrc_half_gone: list[Judged]
    own: list[Judged]
    own_gone: list[Judged]
    none: list[Judged]

    @classmethod
    def of(cls, bench: Bench, cmrc: Sequence[Asked], own: Sequence[Asked], none: Sequence[Asked]) -> Sets:
        """``cmrc_quarter``, ``cmrc_half_gone``, ``own_gone`` and ``none`` have no right answer."""
        half = frozenset(n for n in range(len(bench.corpus.uploads)) if n % 2)
        gone = [q for q in cmrc if bench.own(q) & half]
        there = [q for q in cmrc if not bench.own(q) & half]
        return cls(
            cmrc=bench.ask_all(cmrc),
            cmrc_quarter=bench.ask_all(cmrc, bench.fold_of),
            cmrc_half_there=bench.ask_all(there, lambda _: half),
            cmrc_half_gone=bench.ask_all(gone, lambda _: half),
            own=bench.ask_all(own),
            own_gone=bench.ask_all(own, bench.own),
            none=bench.ask_all(none),
        )

    def written(self) -> list[Evidence]:
        """The hand-written questions as labels."""
        parts = ((self.own, True), (self.own_gone, False), (self.none, False))
        return [
            Evidence(features=j.features, right=ok and j.right, answerable=ok, fold=i % FOLDS, weight=WRITTEN_WEIGHT)
            for part, ok in parts
            for i, j in enumerate(part)
        ]

    def judged_by(self, map_: Calibration) -> dict:
        """Figures of one map."""
        return {
            "cmrc": shares(self.cmrc, map_, answerable=True),
            "cmrc, a quarter gone, unanswerable": shares(self.cmrc_quarter, map_, answerable=False),
            "cmrc, half gone, answerable": shares(self.cmrc_half_there, map_, answerable=True),
            "cmrc, half gone, unanswerable": shares(self.cmrc_half_gone, map_, answerable=False),
            "hand-written": shares(self.own, map_, answerable=True),
            "hand-written, own documents gone": shares(self.own_gone, map_, answerable=False),
            "unanswerable": shares(self.none, map_, answerable=False),
        }


def shipped_map(evidence: Sequence[Evidence], sets: Sets) -> tuple[dict, dict]:
    """The model to ship and its figures on hand-written questions that took no part in the fit."""
    written = sets.written()
    held = fit([*evidence, *written], names=PORTABLE_FEATURES)
    relevance = np.zeros(len(written))
    for number in range(FOLDS):
        map_ = logistic([*evidence, *(e for e in written if e.fold != number)], PORTABLE_FEATURES)
        for i, e in enumerate(written):
            if e.fold == number:
                relevance[i] = map_.relevance(e.features)
    answerable, right = np.array([e.answerable for e in written]), np.array([e.right for e in written])
    figures = {}
    for name, bound in (("HIGHLY_RELEVANT", 0.75), ("REFERENCE", 0.5)):
        taken = relevance >= bound
        figures[name] = {
            "coverage": round(float(taken[answerable].mean()), 4),
            "precision": round(float(right[taken & answerable].mean()), 4),
            "false accepts": round(float(taken[~answerable].mean()), 4),
        }
    return held.model, figures


def before_it_doubled(bench: Bench, count: int) -> list[Evidence]:
    """Labels that every other document of the corpus makes when the rest is not there yet."""
    corpus = bench.corpus
    return Bench(MixedCorpus(corpus.uploads[::2], corpus.embedder, corpus.encode)).evidence(count)


def load(names: Sequence[str], embedder, vectors: KeptVectors, *, kept_only: bool) -> list[Upload]:
    """``kept_only``: of the largest corpus only documents whose vectors are kept already."""
    found = []
    for name in names:
        for upload in documents_of(name):
            if kept_only and name == "tidb-zh":
                text = VersionText(title=upload.title, body=upload.body)
                passages = passages_of("r1:400", text, embedder.tokenizer)
                if not all(vectors.has(p.text, Role.PASSAGE) for p in passages):
                    continue
            found.append(upload)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path(".wellhead/models"))
    parser.add_argument("--cache", type=Path, default=Path(".test-services/quality-vectors.npz"))
    parser.add_argument("--kept-only", action="store_true", help="encode no document of tidb-zh")
    parser.add_argument("--made", type=int, default=360)
    parser.add_argument("--cmrc", type=int, default=1002)
    parser.add_argument("--write-shipped", action="store_true")
    options = parser.parse_args()
    if not SHARED.exists():
        raise SystemExit(f"the corpora are expected in {SHARED}")
    embedder = OnnxEmbedder(options.models / "multilingual-e5-small")
    vectors = KeptVectors(embedder, options.cache)
    uploads = load(CORPORA, embedder, vectors, kept_only=options.kept_only)
    bench = Bench(MixedCorpus(uploads, embedder, vectors))
    own = [q for q in own_questions("answerable") if q.answers & bench.number.keys()]
    cmrc, none = cmrc_questions()[: options.cmrc], own_questions("unanswerable")
    bench.corpus.encode([q.text for q in (*own, *cmrc, *none)], Role.QUERY)
    begun = time.perf_counter()
    sets = Sets.of(bench, cmrc, own, none)
    asked = sum(len(part) for part in vars(sets).values())
    took = (time.perf_counter() - begun) / asked * 1000
    evidence = bench.evidence(options.made)
    begun = time.perf_counter()
    fitted = fit(evidence)
    report = {
        "documents": len(uploads),
        "passages": len(bench.corpus.hits),
        "ranking": {"cmrc": ranking(sets.cmrc), "hand-written": ranking(sets.own)},
        "ms a question, search included": round(took, 2),
        "fit": {"seconds": round(time.perf_counter() - begun, 2), **fitted.figures},
        "fitted": sets.judged_by(logistic(evidence)),
        "fitted before the corpus doubled": sets.judged_by(logistic(before_it_doubled(bench, options.made))),
        "shipped": sets.judged_by(shipped_calibration()),
    }
    if options.write_shipped:
        write_shipped(report, evidence, sets)
    sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def write_shipped(report: dict, evidence: Sequence[Evidence], sets: Sets) -> None:
    """Overwrites ``pipeline/shipped_calibration.json``."""
    model, held_out = shipped_map(evidence, sets)
    out = {
        "source": "ops/bench/quality.py --write-shipped: multilingual-e5-small int8, r1:400; questions made of "
        + ", ".join(CORPORA)
        + " and the hand-written ones of tests/quality/questions",
        "corpus": {"documents": report["documents"], "passages": report["passages"]},
        "labels": {"made": len(evidence), "hand-written": len(sets.written())},
        "figures": {
            "hand-written, held out": held_out,
            **sets.judged_by(logistic([*evidence, *sets.written()], PORTABLE_FEATURES)),
        },
        "model": model,
    }
    text = json.dumps(out, indent=1, ensure_ascii=False) + "\n"
    (Path(__file__).resolve().parents[2] / "pipeline" / "shipped_calibration.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
