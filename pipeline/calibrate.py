"""Calibrate: a generation asks its own documents, with and without them, and learns what its relevance means."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pipeline.assess import assess, excerpt_places, rank
from pipeline.content import Excerpt
from pipeline.documents import Kind
from pipeline.encode import encode_texts
from pipeline.fingerprint import Space
from pipeline.fitting import FEEDBACK_WEIGHT, FOLDS, Evidence, Fitted, fit
from pipeline.fusion import fold as fold_passages
from pipeline.generation import Generation
from pipeline.generations import Jobs
from pipeline.keyword_index import Named
from pipeline.live import LiveDocument, Liveness, Place
from pipeline.ports import Embedder, Floats, LegResults, QueryVector, Role, Scope, VectorStore
from pipeline.pseudo_questions import PseudoQuestion, Source, make_questions, segment_words
from pipeline.relevance import IdentityCalibration, Thresholds
from pipeline.terms import TermStatistics

JOB = "calibrate:"
TRY_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class CalibrationLimits:
    """``documents``: below so many the shipped map is kept. ``feedback``: from so many labels on they take part.

    ``sample``: documents whose terms are counted; questions are made from as many of them as there are questions.
    """

    documents: int = 100
    questions: int = 360
    sample: int = 1000
    candidates: int = 50
    content_tokens: int = 2000
    feedback: int = 50
    claim_seconds: float = 300.0
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True, kw_only=True)
class SampledDocument:
    """A served article of one tenant."""

    document: int
    tenant: str
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a person said of one answer: were its features those of a right one?"""

    features: Mapping[str, float]
    relevant: bool


class Calibrations(Protocol):
    """Maps, labels and the documents they are made from, in the ledger."""

    def sample(self, generation: int, limit: int) -> list[SampledDocument]: ...
    def served(self, generation: int) -> int: ...
    def labels(self, generation: int) -> list[Label]: ...
    def keep(self, generation: int, fitted: Fitted, documents: int) -> int: ...


class LiveTexts(Protocol):
    """What a lookup reads of documents."""

    def liveness(
        self,
        tenant: str,
        generation: int,
        documents: Sequence[int],
        *,
        keys: Sequence[str],
        domain: str | None,
        metadata: Mapping[str, Any],
        grace: float,
    ) -> Liveness: ...
    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]: ...


class Corpus(Protocol):
    """Where the questions of one tenant are searched."""

    def search(self, question: str, vector: QueryVector) -> LegResults: ...
    def live(self, documents: Sequence[int]) -> Mapping[int, LiveDocument]: ...
    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]: ...


@dataclass(frozen=True, kw_only=True)
class StoredCorpus:
    """The corpus of one tenant as its lookups see it."""

    store: VectorStore
    texts: LiveTexts
    generation: Generation
    tenant: str
    candidates: int

    def search(self, question: str, vector: QueryVector) -> LegResults:
        """Both legs."""
        scope = Scope(tenant=self.tenant, kind=Kind.ARTICLE)
        return self.store.search(self.generation.spec, vector, question, scope, self.candidates)

    def live(self, documents: Sequence[int]) -> Mapping[int, LiveDocument]:
        """Those of them that are served."""
        found = self.texts.liveness(
            self.tenant, self.generation.id, documents, keys=(), domain=None, metadata={}, grace=0.0
        )
        return found.documents

    def excerpts(self, places: Sequence[Place]) -> dict[tuple[int, int], Excerpt]:
        """Texts of those places."""
        return self.texts.excerpts(places)


def evidence_of(
    asked: PseudoQuestion,
    legs: LegResults,
    corpus: Corpus,
    statistics: TermStatistics,
    content_tokens: int = 2000,
) -> list[Evidence]:
    """Up to two: the question as it is, and as if a quarter of the documents, its own among them, were not there.

    Both go the way of a lookup: the same folding, fusing, texts and features.
    """
    candidates = fold_passages(legs)
    live = corpus.live(sorted({c.document for c in candidates}))
    own = asked.document % FOLDS
    rest = {d: each for d, each in live.items() if d % FOLDS != own}
    found = []
    for there, answerable in ((live, True), (rest, False)):
        ranked = rank([c for c in candidates if c.document in there], there, Named(), frozenset())
        if not ranked.ordered:
            continue
        excerpts = corpus.excerpts(excerpt_places(ranked, content_tokens))
        left = legs if answerable else _without(legs, there)
        best = assess(
            ranked, left, excerpts, asked.text, statistics, IdentityCalibration(), Thresholds(), degraded=False
        )[0]
        right = answerable and best.document.document == asked.document
        found.append(Evidence(features=best.features, right=right, answerable=answerable, fold=own))
    return found


def _without(legs: LegResults, there: Mapping[int, LiveDocument]) -> LegResults:
    return LegResults(
        dense=tuple(h for h in legs.dense if h.document in there),
        lexical=None if legs.lexical is None else tuple(h for h in legs.lexical if h.document in there),
    )


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Takes the due jobs of the generations that this process can encode for."""

    jobs: Jobs
    calibrations: Calibrations
    texts: LiveTexts
    store: VectorStore
    embedder_for: Callable[[Space], Embedder | None]
    limits: CalibrationLimits = CalibrationLimits()

    def run(self, active: Sequence[Generation], more_time: Callable[[], bool] = lambda: True) -> list[int]:
        """Fits what is due; returns the ids of the new calibrations. ``more_time`` is asked between questions."""
        known = {g.id: g for g in active}
        fitted = []
        # Nothing is begun when the time is up: a fit on no question at all would be taken for a finished one.
        while more_time() and (job := self.jobs.take_job(JOB, self.limits.claim_seconds)) is not None:
            generation = known.get(int(job["name"].removeprefix(JOB)))
            embedder = None if generation is None else self.embedder_for(generation.space)
            if generation is None:
                self.jobs.advance_job(job["name"], job["token"], 0, {}, finished=True)
            elif embedder is None:
                # Another process's space: it gets its chance.
                self.jobs.advance_job(job["name"], job["token"], 0, {}, TRY_AGAIN_SECONDS)
                break
            else:
                kept = self.calibrate(generation, embedder, more_time)
                fitted += [] if kept is None else [kept]
                self.jobs.advance_job(job["name"], job["token"], 0, {}, finished=True)
        return fitted

    def calibrate(
        self, generation: Generation, embedder: Embedder, more_time: Callable[[], bool] = lambda: True
    ) -> int | None:
        """Fits and stores one map; None, and the one in use stays, when there are too few documents or labels."""
        documents = self.calibrations.served(generation.id)
        labels = self.calibrations.labels(generation.id)
        pooled = labels if len(labels) >= self.limits.feedback else []
        if documents < self.limits.documents and not pooled:
            return None
        begun = time.perf_counter()
        evidence, unrelated, encoding = self._evidence(generation, embedder, more_time)
        evidence += _from_feedback(pooled)
        if min(sum(e.right for e in evidence), sum(not e.right for e in evidence)) < FOLDS * 5:
            return None
        fitted = fit(evidence, self.limits.thresholds)
        figures = {
            **fitted.figures,
            "documents": documents,
            "feedback": len(pooled),
            "seconds": round(time.perf_counter() - begun - encoding, 2),
            "seconds_encoding": round(encoding, 2),
        }
        model = {**fitted.model, "unrelated": unrelated}
        return self.calibrations.keep(generation.id, Fitted(model=model, figures=figures), documents)

    def _evidence(
        self, generation: Generation, embedder: Embedder, more_time: Callable[[], bool]
    ) -> tuple[list[Evidence], float | None, float]:
        """The evidence, how near unrelated questions are in this space, and the seconds of encoding."""
        sampled = self.calibrations.sample(generation.id, self.limits.sample)
        statistics = TermStatistics.of(f"{s.title}\n{s.body}" for s in sampled)
        more_time()
        sources = [Source(document=s.document, title=s.title, body=s.body) for s in sampled]
        asked = make_questions(sources, statistics, segment_words, self.limits.questions)
        more_time()
        begun = time.perf_counter()
        vectors = encode_texts(embedder, [a.text for a in asked], Role.QUERY)
        sparse = self._sparse(generation, embedder, asked)
        encoding = time.perf_counter() - begun
        tenants = {s.document: s.tenant for s in sampled}
        found: list[Evidence] = []
        for number, question in enumerate(asked):
            # What is known when the task's time is up has to do: killed, it would begin again and never end.
            if not more_time():
                break
            vector = QueryVector(space=generation.space.name, dense=vectors[number], sparse=sparse[number])
            corpus = self._corpus(generation, tenants[question.document])
            legs = corpus.search(question.text, vector)
            found += evidence_of(question, legs, corpus, statistics, self.limits.content_tokens)
        return found, median_cosine(vectors), encoding

    def _sparse(
        self, generation: Generation, embedder: Embedder, asked: Sequence[PseudoQuestion]
    ) -> list[dict[int, float] | None]:
        if not generation.space.sparse:
            return [None] * len(asked)
        found: list[dict[int, float] | None] = []
        for question in asked:
            weights = embedder.encode(embedder.tokenize([question.text], Role.QUERY)).sparse
            found.append(None if weights is None else weights[0])
        return found

    def _corpus(self, generation: Generation, tenant: str) -> StoredCorpus:
        return StoredCorpus(
            store=self.store,
            texts=self.texts,
            generation=generation,
            tenant=tenant,
            candidates=self.limits.candidates,
        )


def median_cosine(vectors: Floats) -> float | None:
    """Of any two of these unit vectors ([n, dimension]); None for fewer than two."""
    if len(vectors) < 2:
        return None
    return round(float(np.median((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])), 4)


def _from_feedback(labels: Sequence[Label]) -> list[Evidence]:
    return [
        Evidence(
            features=label.features,
            right=label.relevant,
            answerable=label.relevant,
            fold=number % FOLDS,
            weight=FEEDBACK_WEIGHT,
        )
        for number, label in enumerate(labels)
    ]
