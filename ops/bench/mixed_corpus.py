"""Several corpora as one, in memory: the product's own passages and questions with exact legs over kept vectors."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import jieba
import numpy as np
import yaml

from pipeline.content import Excerpt
from pipeline.documents import Upload, VersionText
from pipeline.encode import encode_texts
from pipeline.fingerprint import digest
from pipeline.limits import Limits
from pipeline.live import LiveDocument, Place
from pipeline.ports import Embedder, Floats, Hit, LegResults, Role
from pipeline.reading import read_file
from pipeline.rules import passages_of
from pipeline.walking import walk

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
QUESTIONS = Path(__file__).resolve().parents[2] / "tests" / "quality" / "questions"
RULE = "r1:400"
# Milvus's defaults.
K1, B = 1.2, 0.75
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A real question; ``answers``: the keys that count as right, none when nothing answers it."""

    text: str
    answers: frozenset[str]
    origin: str


class KeptVectors:
    """The encoder, with its vectors kept on disk by space, role and text: no text is encoded twice."""

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self._embedder = embedder
        self._path = path
        self._kept: dict[str, Floats] = {}
        if path.exists():
            with np.load(path) as stored:
                self._kept = dict(zip(stored["names"].tolist(), stored["vectors"], strict=True))

    def __call__(self, texts: Sequence[str], role: Role) -> Floats:
        """Float32 [len(texts), dimension]."""
        names = [self._name(t, role) for t in texts]
        new = list({n: t for n, t in zip(names, texts, strict=True) if n not in self._kept}.items())
        for at in range(0, len(new), 128):
            some = dict(new[at : at + 128])
            vectors = encode_texts(self._embedder, list(some.values()), role)
            self._kept |= dict(zip(some, vectors, strict=True))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(self._path, names=np.array(list(self._kept)), vectors=np.stack(list(self._kept.values())))
        return np.stack([self._kept[n] for n in names])

    def has(self, text: str, role: Role) -> bool:
        """Is it kept?"""
        return self._name(text, role) in self._kept

    def _name(self, text: str, role: Role) -> str:
        return digest(self._embedder.space.name, role, text)


class MixedCorpus:
    """Documents with their passages. Searches leave out the documents that are removed, as if they never were."""

    def __init__(self, uploads: Sequence[Upload], embedder: Embedder, vectors: KeptVectors, rule: str = RULE) -> None:
        self.uploads = list(uploads)
        self.hits: list[Hit] = []
        self.texts: list[str] = []
        for number, upload in enumerate(self.uploads):
            for p in passages_of(rule, VersionText(title=upload.title, body=upload.body), embedder.tokenizer):
                place = {"ordinal": p.ordinal, "hash": p.hash, "start": p.start, "end": p.end, "headings": p.headings}
                key = f"{number}.1.{p.ordinal}"
                self.hits.append(Hit(key=key, document=number, version=1, domain=upload.domain, **place))
                self.texts.append(p.text)
        self.embedder, self.encode = embedder, vectors
        self._of = np.array([h.document for h in self.hits])
        self._vectors = vectors(self.texts, Role.PASSAGE)
        self._weigh()

    def _weigh(self) -> None:
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths = []
        for number, text in enumerate(self.texts):
            counts = Counter(words(text))
            lengths.append(sum(counts.values()))
            for word, n in counts.items():
                postings[word].append((number, n))
        self._postings = {w: (np.array([n for n, _ in p]), np.array([f for _, f in p])) for w, p in postings.items()}
        self._lengths = np.array(lengths, float)

    def vector(self, question: str) -> Floats:
        """Float32 [dimension]."""
        return self.encode([question], Role.QUERY)[0]

    def search(
        self, question: str, vector: Floats, removed: frozenset[int] = frozenset(), limit: int = 50
    ) -> LegResults:
        """Both legs over what is not removed."""
        gone = np.isin(self._of, list(removed)) if removed else np.zeros(len(self._of), bool)
        near = self._vectors @ vector
        dense = np.where(gone, -np.inf, near)
        lexical = self._bm25(words(question), gone)
        lexical[gone] = 0.0
        return LegResults(
            dense=tuple(replace(self.hits[i], dense=float(dense[i])) for i in _best(dense, limit, -1.0)),
            lexical=tuple(
                replace(self.hits[i], lexical=float(lexical[i]), dense=float(near[i]))
                for i in _best(lexical, limit, 0.0)
            ),
        )

    def _bm25(self, question: Sequence[str], gone: np.ndarray) -> np.ndarray:
        scores = np.zeros(len(self.texts))
        there = int((~gone).sum())
        norm = K1 * (1 - B + B * self._lengths / self._lengths[~gone].mean())
        for word in question:
            if word in self._postings:
                at, counts = self._postings[word]
                holding = int((~gone[at]).sum())
                idf = math.log(1 + (there - holding + 0.5) / (holding + 0.5))
                scores[at] += idf * counts * (K1 + 1) / (counts + norm[at])
        return scores

    def live(self, documents: Iterable[int]) -> dict[int, LiveDocument]:
        """Every document is live in version 1."""
        return {n: self._document(n) for n in documents}

    def _document(self, number: int) -> LiveDocument:
        u = self.uploads[number]
        return LiveDocument(
            document=number, key=u.key, title=u.title, domain=u.domain, source="", updated_at=NOW, live_version=1,
            prev_version=None,
        )  # fmt: skip

    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]:
        """Stretches of bodies."""
        found = {}
        for p in places:
            body = self.uploads[p.document].body or ""
            text = body[p.start : p.start + p.length]
            found[p.document, 1] = Excerpt(text=text, offset=p.start, first_line=1, length=len(body))
        return found

    def bodies(self, removed: frozenset[int] = frozenset()) -> Mapping[int, str]:
        """Title and body of every document that is there."""
        return {n: f"{u.title}\n{u.body}" for n, u in enumerate(self.uploads) if n not in removed}


@lru_cache(maxsize=20_000)
def words(text: str) -> tuple[str, ...]:
    """As the vector store's analyzer cuts."""
    return tuple(w for w in (w.strip() for w in jieba.lcut_for_search(text.lower())) if any(c.isalnum() for c in w))


def _best(scores: np.ndarray, limit: int, floor: float) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:limit]
    return [int(i) for i in order if scores[i] > floor]


def documents_of(name: str, corpora: Path = SHARED / "corpora") -> list[Upload]:
    """The documents of one folder, or the passages of the CMRC trial set. Keys are paths below the corpora."""
    if name == "cmrc2018":
        paragraphs = [p for item in _cmrc(corpora) for p in ((item, q) for q in item["paragraphs"])]
        return [
            Upload(key=f"cmrc2018/{p['id']}", title=item.get("title", ""), domain=name, body=p["context"])
            for item, p in paragraphs
        ]
    found = []
    for each in walk([corpora / name]):
        for upload in read_file(each, Limits()):
            if isinstance(upload, Upload) and upload.body:
                key = f"{name}/{upload.key.split(f'{name}/')[-1]}"
                found.append(Upload(**{**vars_of(upload), "key": key}))
    return found


def vars_of(upload: Upload) -> dict:
    """The fields of an upload."""
    return {name: getattr(upload, name) for name in Upload.__dataclass_fields__}


def _cmrc(corpora: Path) -> list[dict]:
    return json.loads((corpora / "cmrc2018" / "trial.json").read_text("utf-8"))["data"]


def cmrc_questions(corpora: Path = SHARED / "corpora") -> list[Asked]:
    """The questions people wrote for the trial passages."""
    return [
        Asked(text=q["question"], answers=frozenset({f"cmrc2018/{p['id']}"}), origin="cmrc2018")
        for item in _cmrc(corpora)
        for p in item["paragraphs"]
        for q in p["qas"]
    ]


def own_questions(name: str) -> list[Asked]:
    """The hand-written ones: ``answerable`` or ``unanswerable``."""
    found = yaml.safe_load((QUESTIONS / f"{name}.yaml").read_text("utf-8"))
    return [
        Asked(text=q["query"], answers=frozenset(q.get("answers", ())), origin=q.get("corpus", q["lang"]))
        for q in found
    ]
