"""Fits ``pipeline/shipped_calibration.json``: the noise floor of a corpus that is too small for a map of its own.

    python -m ops.bench.fit_shipped --corpora ../shared/corpora --models .wellhead/models [--write]

Labels come from the corpora themselves: questions made from a document's own terms (templates and cloze), and the
same questions with the document really removed, in four folds. The real questions (CMRC trial, hand-written ones)
only judge. Both legs are computed exactly here, with the tokenizer and constants that the vector store uses.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import jieba
import numpy as np
import yaml
from sklearn.linear_model import LogisticRegression

from pipeline.adapters.onnx import OnnxEmbedder
from pipeline.assess import assess, excerpt_places, rank
from pipeline.content import Excerpt
from pipeline.documents import Upload, VersionText
from pipeline.fingerprint import digest
from pipeline.fusion import fold
from pipeline.keyword_index import KeywordIndex, Named
from pipeline.limits import Limits
from pipeline.live import LiveDocument
from pipeline.packing import pack
from pipeline.ports import Hit, LegResults, Role
from pipeline.reading import read_file
from pipeline.relevance import IdentityCalibration, LogisticCalibration, Thresholds
from pipeline.rules import passages_of
from pipeline.terms import TermStatistics, has_cjk, terms, without_question_words
from pipeline.walking import walk

LIMIT = 50
FOLDS = 4
K1, B = 1.5, 0.75
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FEATURES = (
    "dense_margin",
    "dense_gap",
    "dense_rank",
    "lexical_cover",
    "lexical_ratio",
    "lexical_margin",
    "lexical_strength",
    "lexical_rank",
    "agreement",
    "fusion_gap",
)


@dataclass
class Corpus:
    """Documents, their passages, vectors and BM25 postings, with any of the documents left out."""

    uploads: list[Upload]
    encode: Encoder
    hits: list[Hit] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, upload in enumerate(self.uploads):
            text = VersionText(title=upload.title, body=upload.body)
            for p in passages_of("r1:400", text, self.encode.embedder.tokenizer):
                self.hits.append(
                    Hit(
                        key=f"{number}.1.{p.ordinal}", document=number, version=1, ordinal=p.ordinal, domain="",
                        hash=p.hash, start=p.start, end=p.end, headings=p.headings,
                    )
                )  # fmt: skip
                self.texts.append(p.text)
        self.documents = np.array([h.document for h in self.hits])
        self.vectors = self.encode(self.texts, Role.PASSAGE)
        self._count()

    def _count(self) -> None:
        self.postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths = []
        for number, text in enumerate(self.texts):
            counts = Counter(words(text))
            lengths.append(sum(counts.values()))
            for word, n in counts.items():
                self.postings[word].append((number, n))
        self.lengths = np.array(lengths, float)
        self.live = {
            n: LiveDocument(
                document=n, key=u.key, title=u.title, domain=u.domain, source="", updated_at=NOW, live_version=1,
                prev_version=None,
            )
            for n, u in enumerate(self.uploads)
        }  # fmt: skip

    def legs(self, question: str, vector: np.ndarray, removed: np.ndarray) -> LegResults:
        """``removed``: True for every passage that is not there."""
        dense = self.vectors @ vector
        dense[removed] = -np.inf
        scores = self._bm25(words(question), removed)
        return LegResults(dense=self._best(dense, "dense", -1.0), lexical=self._best(scores, "lexical", 0.0))

    def _best(self, scores: np.ndarray, leg: str, floor: float) -> tuple[Hit, ...]:
        order = np.argsort(-scores)[:LIMIT]
        return tuple(Hit(**{**vars_of(self.hits[i]), leg: float(scores[i])}) for i in order if scores[i] > floor)

    def _bm25(self, question: Sequence[str], removed: np.ndarray) -> np.ndarray:
        scores = np.zeros(len(self.texts))
        n = int((~removed).sum())
        mean = float(self.lengths[~removed].mean())
        for word in question:
            found = [(i, f) for i, f in self.postings.get(word, ()) if not removed[i]]
            idf = math.log(1 + (n - len(found) + 0.5) / (len(found) + 0.5))
            for i, f in found:
                scores[i] += idf * f * (K1 + 1) / (f + K1 * (1 - B + B * self.lengths[i] / mean))
        return scores

    def statistics(self, left_out: set[int]) -> TermStatistics:
        return TermStatistics.of(f"{u.title}\n{u.body}" for n, u in enumerate(self.uploads) if n not in left_out)


def vars_of(hit: Hit) -> dict:
    return {name: getattr(hit, name) for name in Hit.__dataclass_fields__}


def words(text: str) -> list[str]:
    return [w for w in (w.strip() for w in jieba.lcut_for_search(text.lower())) if re.search(r"\w", w)]


class Encoder:
    """The encoder with its vectors kept on disk, so that another fit need not encode again."""

    def __init__(self, embedder: OnnxEmbedder, path: Path | None) -> None:
        self.embedder = embedder
        self._path = path
        self._kept: dict[str, np.ndarray] = {}
        if path is not None and path.exists():
            with np.load(path) as stored:
                self._kept = dict(zip(stored["names"].tolist(), stored["vectors"], strict=True))

    def __call__(self, texts: Sequence[str], role: Role) -> np.ndarray:
        names = [digest(self.embedder.space.name, role, t) for t in texts]
        new = list({n: t for n, t in zip(names, texts, strict=True) if n not in self._kept}.items())
        for at in range(0, len(new), 256):
            some = dict(new[at : at + 256])
            self._kept |= dict(zip(some, encode(self.embedder, list(some.values()), role), strict=True))
            if self._path is not None:
                np.savez(self._path, names=np.array(list(self._kept)), vectors=np.stack(list(self._kept.values())))
            say(f"{at + len(some)} of {len(new)} encoded")
        return np.stack([self._kept[n] for n in names])


def encode(embedder: OnnxEmbedder, texts: Sequence[str], role: Role) -> np.ndarray:
    ids = embedder.tokenize(texts, role) if texts else []
    out = np.zeros((len(texts), embedder.space.dimension), np.float32)
    for batch in pack([len(i) for i in ids], 1024):
        out[batch] = embedder.encode([ids[i] for i in batch]).dense
    return out


def load(corpora: Path, longest: int, every: int) -> tuple[list[Upload], list[tuple[str, str]]]:
    """The documents, and CMRC's questions with the key each belongs to."""
    uploads = []
    for name in ("tidb-zh", "runbooks-en", "runbooks-zh", "glossary-zh"):
        for number, found in enumerate(walk([corpora / name])):
            if name == "tidb-zh" and number % every:
                continue
            for upload in read_file(found, Limits()):
                if isinstance(upload, Upload) and upload.body and len(upload.body) > 80:
                    key = f"{name}/{upload.key.split(name + '/')[-1]}"
                    uploads.append(Upload(**{**fields(upload), "key": key, "body": upload.body[:longest]}))
    questions = []
    for item in json.loads((corpora / "cmrc2018/trial.json").read_text("utf-8"))["data"]:
        for paragraph in item["paragraphs"]:
            key = f"cmrc/{paragraph['id']}"
            uploads.append(Upload(key=key, body=paragraph["context"], title=item.get("title", ""), domain="cmrc"))
            questions += [(q["question"], key) for q in paragraph["qas"]]
    return uploads, questions


def fields(upload: Upload) -> dict:
    return {name: getattr(upload, name) for name in Upload.__dataclass_fields__}


ZH = (
    "{a}的{b}是什么？",
    "{a}{b}怎么处理",
    "如何{a}{b}？",
    "{t}{a}怎么办",
    "{t}的{a}和{b}",
    "为什么{a}会{b}",
    "{a}是什么时候{b}的？",
)
EN = (
    "what is {a} {b}",
    "how to fix {a} {b}",
    "why does {a} {b} happen",
    "{t} {a} problem",
    "{a} and {b} in {t}",
    "how do I check {a}",
)


def made_questions(corpus: Corpus, statistics: TermStatistics, rng: random.Random, templates: int, cloze: int):
    """(question, document): two thirds templates, one third sentences with holes."""
    made = []
    numbers = list(range(len(corpus.uploads)))
    for count, make in ((templates, template), (cloze, holes)):
        rng.shuffle(numbers)
        for number in (numbers * (count // len(numbers) + 1))[:count]:
            question = make(corpus.uploads[number], statistics, rng)
            if question:
                made.append((question, number))
    return made


def template(upload: Upload, statistics: TermStatistics, rng: random.Random) -> str | None:
    body = re.sub(r"```.*?```|`[^`]*`|https?://\S+", " ", upload.body or "", flags=re.DOTALL)
    counts = Counter(w for w in words(body) if len(w) > 1 and not w.isdigit() and without_question_words(w).strip())
    weighed = sorted(counts, key=lambda w: -(1 + math.log(counts[w])) * _idf(w, statistics))[:30]
    if len(weighed) < 4:
        return None
    a, b = rng.sample(weighed, 2)
    return rng.choice(ZH if has_cjk(body[:2000]) else EN).format(a=a, b=b, t=rng.choice((upload.title, a)))


def _idf(word: str, statistics: TermStatistics) -> float:
    return min((statistics.idf(t) for t in terms(word)), default=0.0)


def holes(upload: Upload, _statistics: TermStatistics, rng: random.Random) -> str | None:
    body = re.sub(r"```.*?```|https?://\S+", " ", upload.body or "", flags=re.DOTALL)
    sentences = [s.strip() for s in re.split(r"[。！？\n]|(?<=[.!?])\s", body) if 20 <= len(s.strip()) <= 160]
    if not sentences:
        return None
    chosen = [w for w in jieba.lcut(rng.choice(sentences)) if re.search(r"\w", w)]
    kept = [w for w in chosen if rng.random() < 0.55]
    joint = "" if has_cjk("".join(kept)) else " "
    return joint.join(kept) or None


def first(corpus, statistics, question, vector, removed, named: Named, map_, *, degraded=False):
    """The best candidate as a lookup assesses it."""
    legs = corpus.legs(question, vector, removed)
    ranked = rank(fold(legs), corpus.live, named, frozenset())
    excerpts = {}
    for p in excerpt_places(ranked, 2000):
        body = corpus.uploads[p.document].body or ""
        excerpts[p.document, 1] = Excerpt(
            text=body[p.start : p.start + p.length], offset=p.start, first_line=1, length=len(body)
        )
    return assess(ranked, legs, excerpts, question, statistics, map_, Thresholds(), degraded=degraded)


def rows(corpus: Corpus, made, whole: TermStatistics):
    """Features and labels: each question with its document there, and with a quarter of the documents removed."""
    vectors = corpus.encode([q for q, _ in made], Role.QUERY)
    everything = np.zeros(len(corpus.hits), bool)
    out, labels = [], []
    for fold_number in range(FOLDS):
        gone = {n for n in range(len(corpus.uploads)) if n % FOLDS == fold_number}
        removed = np.isin(corpus.documents, list(gone))
        rest = corpus.statistics(gone)
        for (question, number), vector in zip(made, vectors, strict=True):
            if number not in gone:
                continue
            for mask, statistics in ((everything, whole), (removed, rest)):
                best = first(corpus, statistics, question, vector, mask, Named(), IdentityCalibration())
                if best:
                    out.append(best[0].features)
                    labels.append(mask is everything and best[0].document.document == number)
    return out, np.array(labels)


def fit(found, labels) -> LogisticCalibration:
    matrix = np.array([[f.get(name, np.nan) for name in FEATURES] for f in found])
    mean, scale = np.nanmean(matrix, 0), np.nanstd(matrix, 0) + 1e-9
    matrix = np.nan_to_num((matrix - mean) / scale)
    # Two answerable questions for one that is not: what a corpus is asked that covers its field.
    weight = np.where(labels, 2.0 / labels.sum(), 1.0 / (~labels).sum()) * len(labels)
    model = LogisticRegression(C=1.0, max_iter=1000).fit(matrix, labels, sample_weight=weight)
    return LogisticCalibration(
        features=FEATURES,
        mean=tuple(round(float(v), 6) for v in mean),
        scale=tuple(round(float(v), 6) for v in scale),
        weights=tuple(round(float(v), 5) for v in model.coef_[0]),
        bias=round(float(model.intercept_[0]), 5),
    )


def judge(corpus: Corpus, statistics, map_, questions, answerable: bool, removed=None, index=None):
    """Share right at 1 and 3, and per threshold: share accepted and the precision of what is."""
    vectors = corpus.encode([q for q, _ in questions], Role.QUERY)
    removed = np.zeros(len(corpus.hits), bool) if removed is None else removed
    right1 = right3 = 0
    relevance, right = [], []
    levels = Counter()
    for (question, wanted), vector in zip(questions, vectors, strict=True):
        named = index.match(question) if index is not None else Named()
        best = first(corpus, statistics, question, vector, removed, named, map_)
        numbers = [b.document.key for b in best]
        right1 += numbers[0] in wanted
        right3 += any(n in wanted for n in numbers[:3])
        relevance.append(best[0].relevance)
        right.append(numbers[0] in wanted)
        levels[str(next((b.level for b in best if b.level is not None), None))] += 1
    relevance, right = np.array(relevance), np.array(right)
    figures = {"questions": len(questions), "levels": dict(levels)}
    if answerable:
        figures |= {"recall@1": round(right1 / len(questions), 4), "recall@3": round(right3 / len(questions), 4)}
    for threshold in (0.75, 0.5):
        taken = relevance >= threshold
        figures[f">={threshold}"] = round(float(taken.mean()), 4)
        if answerable and taken.any():
            figures[f"precision>={threshold}"] = round(float(right[taken].mean()), 4)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--questions", type=Path, default=Path("tests/quality/questions"))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--longest", type=int, default=1_000_000, help="characters of a body that take part")
    parser.add_argument("--every", type=int, default=1, help="every n-th document of the largest corpus, tidb-zh")
    parser.add_argument("--made", type=int, default=1350, help="questions made from the documents")
    parser.add_argument("--judged", type=int, default=1002, help="questions of CMRC that judge")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    jieba.setLogLevel("ERROR")
    embedder = OnnxEmbedder(options.models / "multilingual-e5-small")
    uploads, cmrc = load(options.corpora, options.longest, options.every)
    corpus = Corpus(uploads, Encoder(embedder, options.cache))
    whole = corpus.statistics(set())
    say(f"{len(uploads)} documents, {len(corpus.hits)} passages, {time.monotonic() - began:.0f} s")
    made = made_questions(corpus, whole, random.Random(7), options.made * 2 // 3, options.made // 3)
    found, labels = rows(corpus, made, whole)
    map_ = fit(found, labels)
    say(f"{len(labels)} labels, {labels.mean():.3f} positive, {time.monotonic() - began:.0f} s")
    figures = report(corpus, whole, map_, cmrc[: options.judged], options.questions)
    out = {
        "source": "ops/bench/fit_shipped.py: multilingual-e5-small int8, r1:400 passages, tidb-zh, runbooks-en,"
        " runbooks-zh, glossary-zh and CMRC 2018 trial passages (without their questions)",
        "corpus": {
            "documents": len(uploads),
            "longest_body_chars": options.longest,
            "every_tidb_document": options.every,
        },
        "labels": {"questions": len(made), "rows": len(labels), "positive": round(float(labels.mean()), 4)},
        "figures": figures,
        "model": {
            "kind": "logistic",
            "features": map_.features,
            "mean": map_.mean,
            "scale": map_.scale,
            "weights": map_.weights,
            "bias": map_.bias,
        },
    }
    text = json.dumps(out, indent=1, ensure_ascii=False) + "\n"
    if options.write:
        Path("pipeline/shipped_calibration.json").write_text(text, "utf-8")
    sys.stdout.write(text)


def report(corpus: Corpus, whole: TermStatistics, map_, cmrc, questions: Path) -> dict:
    """Real questions, none of which took part in the fit."""
    half = {n for n in range(len(corpus.uploads)) if n % 2}
    removed = np.isin(corpus.documents, list(half))
    rest = corpus.statistics(half)
    there = [(q, {k}) for q, k in cmrc]
    keys = {corpus.uploads[n].key for n in half}
    gone = [(q, {k}) for q, k in cmrc if k in keys]
    stay = [(q, {k}) for q, k in cmrc if k not in keys]
    index = KeywordIndex()
    for number, upload in enumerate(corpus.uploads):
        index.put(number, (*upload.keywords, upload.title))
    list(index.build())
    hand = yaml.safe_load((questions / "answerable.yaml").read_text("utf-8"))
    none = yaml.safe_load((questions / "unanswerable.yaml").read_text("utf-8"))
    known = {u.key for u in corpus.uploads}
    own = [(q["query"], set(q["answers"])) for q in hand if set(q["answers"]) & known]
    return {
        "cmrc": judge(corpus, whole, map_, there, answerable=True),
        "cmrc, half of the corpus gone, answerable": judge(corpus, rest, map_, stay, True, removed),
        "cmrc, half of the corpus gone, unanswerable": judge(corpus, rest, map_, gone, False, removed),
        "hand-written": judge(corpus, whole, map_, own, answerable=True),
        "hand-written with titles as names": judge(corpus, whole, map_, own, True, None, index),
        "unanswerable": judge(corpus, whole, map_, [(q["query"], set()) for q in none], answerable=False),
        "unanswerable with titles as names": judge(
            corpus, whole, map_, [(q["query"], set()) for q in none], False, None, index
        ),
    }


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
