"""How well recall finds conversations: ``python -m ops.bench.recall``.

Embeds the episodes of a set (``--episodes`` directory of JSONL, ``--questions`` YAML), asks its questions and prints
right-first and right-among-three by style, with the levels. ``--fit`` fits the map of ``pipeline.recall_relevance``
again and prints it.

The map was fitted so: each question with its episode (right: 1, the two behind it: 0), each question with its episode
left out (0), 120 questions about other things (0), the whole over all, half and a quarter of the episodes, classes
balanced, C = 1.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import yaml

from pipeline.adapters.ledger.receiving import event_json
from pipeline.documents import Upload, VersionText
from pipeline.episode_view import view_of
from pipeline.exact_strings import exact_strings
from pipeline.fusion import Candidate, fold, fuse
from pipeline.limits import Limits
from pipeline.ports import Embedder, Hit, LegResults, Role
from pipeline.recall_cues import bonus
from pipeline.recall_ranking import DENSE_WEIGHT
from pipeline.recall_relevance import features, relevance
from pipeline.rules import passages_of
from pipeline.settings import Settings
from pipeline.terms import TermStatistics, normalise, query_terms
from pipeline.validation import validate

TextOf = Callable[[Upload], VersionText]
CANDIDATES = 50


@dataclass(frozen=True)
class Question:
    """One question and the key of the episode that answers it; None: no episode does."""

    query: str
    key: str | None
    style: str


@dataclass(frozen=True)
class Asked:
    """One answer: keys in order, and the relevance of each of the first three."""

    question: Question
    keys: Sequence[str]
    relevance: Sequence[float]

    @property
    def rank(self) -> int:
        return self.keys.index(self.question.key) + 1 if self.question.key in self.keys else len(self.keys) + 1


def body(upload: Upload) -> VersionText:
    """What is embedded: title and events."""
    return VersionText(title=upload.title, events=upload.events)


class Memory:
    """The episodes of a set in memory: the pipeline's own rule, encoder, fusion, cues and map, with a plain BM25."""

    def __init__(
        self, embedder: Embedder, episodes: Sequence[Upload], *, text_of: TextOf = body, batch: int = 8
    ) -> None:
        self.embedder = embedder
        self.episodes = list(episodes)
        self.passages = [
            (number, passage)
            for number, upload in enumerate(self.episodes)
            for passage in passages_of("r1:400", text_of(upload), embedder.tokenizer)
        ]
        self.dense = encoded(embedder, [p.text for _, p in self.passages], Role.PASSAGE, batch)
        self.words = [words(p.text) for _, p in self.passages]
        self.views = [view_of([event_json(e) for e in u.events or ()]) for u in self.episodes]

    def ask(
        self, question: Question, vector: np.ndarray, *, without: str | None = None, among: frozenset[int] | None = None
    ) -> Asked:
        legs, ordered = self.ranked(question, vector, without=without, among=among)
        found = [relevance(self.features(question, ordered[at:], legs), legs) for at in range(min(3, len(ordered)))]
        return Asked(question, [self.episodes[c.document].key for c in ordered], found)

    def features(self, question: Question, ordered: Sequence[Candidate], legs: LegResults) -> dict[str, float]:
        best = ordered[0]
        view, title = self.views[best.document], self.episodes[best.document].title
        text = "\n".join([title, *(view.stretch(h.start, h.end) for h in best.hits[:2])])
        return features(ordered, legs, TermStatistics().cover(query_terms(question.query), text))

    def ranked(
        self, question: Question, vector: np.ndarray, *, without: str | None, among: frozenset[int] | None
    ) -> tuple[LegResults, list[Candidate]]:
        seen = [
            i
            for i, (n, _) in enumerate(self.passages)
            if self.episodes[n].key != without and (among is None or n in among)
        ]
        dense = sorted(((float(self.dense[i] @ vector), i) for i in seen), reverse=True)[:CANDIDATES]
        lexical = sorted(
            zip(bm25(words(question.query), [self.words[i] for i in seen]), seen, strict=True), reverse=True
        )
        legs = LegResults(
            dense=tuple(self._hit(i, dense=s) for s, i in dense),
            lexical=tuple(self._hit(i, lexical=s) for s, i in lexical[:CANDIDATES] if s > 0),
        )
        strings = exact_strings(question.query).all
        said = {
            n: sum(s in normalise("\n".join(self.views[n].texts)) for s in strings)
            for n in {self.passages[i][0] for i in seen}
        }
        ordered = fuse(fold(legs), dense_weight=DENSE_WEIGHT)
        known = {c.document for c in ordered}
        ordered += [
            Candidate(document=n, version=1, score=-9.0) for n, count in said.items() if count and n not in known
        ]
        scored = {
            c.document: c.score + bonus(question.query, [event_json(e) for e in self.episodes[c.document].events or ()])
            for c in ordered[:8]
        }
        return legs, sorted(ordered, key=lambda c: (-said[c.document], -scored.get(c.document, c.score), c.document))

    def _hit(self, at: int, *, dense: float | None = None, lexical: float | None = None) -> Hit:
        number, passage = self.passages[at]
        return Hit(
            key=str(at),
            document=number,
            version=1,
            ordinal=passage.ordinal,
            domain="",
            hash=passage.hash,
            start=passage.start,
            end=passage.end,
            headings=(),
            dense=dense,
            lexical=lexical,
        )


def encoded(embedder: Embedder, texts: Sequence[str], role: Role, batch: int = 8) -> np.ndarray:
    """Vectors of the texts, [n, dimension]."""
    ids = embedder.tokenize(texts, role)
    return np.concatenate([embedder.encode(ids[i : i + batch]).dense for i in range(0, len(ids), batch)])


def words(text: str) -> list[str]:
    """As the store's analyser: jieba, lower case, no punctuation."""
    import jieba

    jieba.setLogLevel("WARNING")
    return [w for w in (w.strip().lower() for w in jieba.cut(text)) if any(c.isalnum() for c in w)]


def bm25(asked: Sequence[str], documents: Sequence[Sequence[str]], k: float = 1.2, b: float = 0.75) -> list[float]:
    """Plain BM25 of each document."""
    mean = fmean(map(len, documents)) if documents else 1.0
    scores = [0.0] * len(documents)
    for word in set(asked):
        counts = [d.count(word) for d in documents]
        holding = sum(c > 0 for c in counts)
        rarity = float(np.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5)))
        for i, count in enumerate(counts):
            if count:
                scores[i] += rarity * count * (k + 1) / (count + k * (1 - b + b * len(documents[i]) / mean))
    return scores


def load(episodes: Path, questions: Path) -> tuple[list[Upload], list[Question]]:
    """The uploads and the questions of a set."""
    limits = Limits.from_settings(Settings())
    lines = [line for path in sorted(episodes.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    asked = yaml.safe_load(questions.read_text("utf-8"))
    return (
        [validate(json.loads(line), limits) for line in lines],
        [Question(q["query"], q["key"], q.get("style", "semantic")) for q in asked],
    )


def ask_all(memory: Memory, questions: Sequence[Question]) -> list[Asked]:
    """Every question, asked."""
    vectors = encoded(memory.embedder, [q.query for q in questions], Role.QUERY, 16)
    return [memory.ask(q, v) for q, v in zip(questions, vectors, strict=True)]


def share(answers: Iterable[Asked], among: int) -> float:
    """Which share has the right episode among the first so many; raises when nothing was asked."""
    return fmean(a.rank <= among for a in answers)


def fit(memory: Memory, questions: Sequence[Question], others: Sequence[str]) -> dict[str, list[float]]:
    """The map of ``pipeline.recall_relevance``, fitted again."""
    from sklearn.linear_model import LogisticRegression

    names = ("margin", "gap", "lexical_cover", "agreement", "fusion_gap", "lexical_margin")
    told = [q for q in questions if q.style != "exact"]
    strange = [Question(q, None, "other") for q in others]
    vectors = encoded(memory.embedder, [q.query for q in (*told, *strange)], Role.QUERY, 16)
    chooser, whole = random.Random(3), range(len(memory.episodes))
    parts = [frozenset(chooser.sample(whole, len(whole) // n)) for n in (1, 2, 4)]
    rows: list[tuple[dict[str, float], int]] = []
    for among in parts:
        for question, vector in zip((*told, *strange), vectors, strict=True):
            for without in (None, question.key) if question.key else (None,):
                legs, ordered = memory.ranked(question, vector, without=without, among=among)
                depth = 3 if without is None and question.key else 1
                for at in range(min(depth, len(ordered))):
                    right = memory.episodes[ordered[at].document].key == question.key
                    rows.append((memory.features(question, ordered[at:], legs), int(right)))
    x = np.array([[found.get(n, np.nan) for n in names] for found, _ in rows])
    mean, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    z = np.where(np.isnan(x), 0.0, (x - mean) / scale)
    model = LogisticRegression(C=1.0, class_weight="balanced").fit(z, [y for _, y in rows])
    return {
        "mean": [round(float(v), 5) for v in mean],
        "scale": [round(float(v), 5) for v in scale],
        "weights": [round(float(v), 4) for v in model.coef_[0]],
        "bias": [round(float(model.intercept_[0]), 4)],
    }


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=Path, default=root / "tests/quality/episodes")
    parser.add_argument("--questions", type=Path, default=root / "tests/quality/episodes/questions.yaml")
    parser.add_argument("--models", type=Path, default=root / ".test-services/models")
    parser.add_argument("--fit", action="store_true")
    given = parser.parse_args()
    from ops.bundled_model import ensure
    from pipeline.adapters.onnx import OnnxEmbedder

    episodes, questions = load(given.episodes, given.questions)
    memory = Memory(OnnxEmbedder(ensure(given.models)), episodes)
    answers = ask_all(memory, questions)
    for style in sorted({q.style for q in questions}):
        chosen = [a for a in answers if a.question.style == style]
        print(f"{style}: {len(chosen)} questions, first {share(chosen, 1):.3f}, among three {share(chosen, 3):.3f}")
    print(f"all: {len(answers)} questions, first {share(answers, 1):.3f}, among three {share(answers, 3):.3f}")
    for missed in (a for a in answers if a.rank > 1):
        print(f"  {missed.rank}. {missed.question.query} → {missed.keys[0]}")
    if given.fit:
        others = yaml.safe_load((root / "tests/quality/questions/unanswerable.yaml").read_text("utf-8"))
        print(json.dumps(fit(memory, questions, [q["query"] for q in others][:120])))


if __name__ == "__main__":
    main()
