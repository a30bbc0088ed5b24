"""Questions that a corpus makes about itself: what a document can be asked, without anybody writing it. Pure.

Two thirds are templates over the document's own key terms, one third is a sentence of its with holes; both in the
document's language. Measured against other generators in the spike that ``ops/bench/quality.py`` repeats: keywords
alone, titles or whole sentences teach a map to trust too little.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.terms import TermStatistics, has_cjk, terms, without_question_words

_NOISE = re.compile(r"```.*?```|`[^`]*`|https?://\S+|<[^>]+>|\{\{.*?\}\}", re.DOTALL)
_SENTENCE_END = re.compile(r"[。！？\n]|(?<=[.!?])\s")
_WORD = re.compile(r"\w")

TEMPLATES_ZH = (
    "{a}的{b}是什么？",
    "{a}{b}怎么处理",
    "如何{a}{b}？",
    "{t}{a}怎么办",
    "{t}的{a}和{b}",
    "为什么{a}会{b}",
    "{a}是什么时候{b}的？",
)
TEMPLATES_EN = (
    "what is {a} {b}",
    "how to fix {a} {b}",
    "why does {a} {b} happen",
    "{t} {a} problem",
    "{a} and {b} in {t}",
    "how do I check {a}",
)
KEY_TERMS = 30
# Of a sentence's words, this share stays.
KEPT = 0.55


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document that questions are made from."""

    document: int
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class PseudoQuestion:
    """``document`` answers ``text``: it was made from it."""

    text: str
    document: int


Segment = Callable[[str], Iterable[str]]


def make_questions(
    sources: Sequence[Source], statistics: TermStatistics, segment: Segment, count: int, seed: int = 7
) -> list[PseudoQuestion]:
    """At most ``count`` questions, spread evenly over the documents; the same ones for the same corpus.

    In an order of which any beginning is a fair sample: whoever runs out of time asks no more than that.

    ``segment`` cuts text into words. A document too short for either kind gives none.
    """
    rng = random.Random(seed)
    made: list[PseudoQuestion] = []
    order = list(sources)
    for wanted, make in ((count * 2 // 3, _template), (count - count * 2 // 3, _cloze)):
        rng.shuffle(order)
        for source in _cycled(order, wanted):
            text = make(source, statistics, segment, rng)
            if text:
                made.append(PseudoQuestion(text=text, document=source.document))
    rng.shuffle(made)
    return made


def _cycled(order: Sequence[Source], count: int) -> list[Source]:
    return [order[i % len(order)] for i in range(count)] if order else []


def key_terms(source: Source, statistics: TermStatistics, segment: Segment) -> list[str]:
    """The words that tell this document from others, best first."""
    counts = Counter(
        w
        for w in segment(_NOISE.sub(" ", source.body[:20_000]).lower())
        if len(w) > 1 and _WORD.search(w) and not w.isdigit() and without_question_words(w).strip()
    )
    weights: Mapping[str, float] = {w: (1 + math.log(n)) * _idf(w, statistics) for w, n in counts.items()}
    return sorted(weights, key=lambda w: (-weights[w], w))[:KEY_TERMS]


def _idf(word: str, statistics: TermStatistics) -> float:
    return min((statistics.idf(t) for t in terms(word)), default=0.0)


def _template(source: Source, statistics: TermStatistics, segment: Segment, rng: random.Random) -> str:
    found = key_terms(source, statistics, segment)
    if len(found) < 4:
        return ""
    a, b = rng.sample(found, 2)
    templates = TEMPLATES_ZH if has_cjk(source.body[:2000]) else TEMPLATES_EN
    return rng.choice(templates).format(a=a, b=b, t=rng.choice((source.title or a, a)))


def _cloze(source: Source, _statistics: TermStatistics, segment: Segment, rng: random.Random) -> str:
    body = _NOISE.sub(" ", source.body[:20_000])
    sentences = [s.strip() for s in _SENTENCE_END.split(body) if 20 <= len(s.strip()) <= 160]
    if not sentences:
        return ""
    sentence = rng.choice(sentences)
    kept = [w for w in segment(sentence) if _WORD.search(w) and rng.random() < KEPT]
    return ("" if has_cjk(sentence) else " ").join(kept)


def segment_words(text: str) -> list[str]:
    """Words of Latin script whole, Chinese ones by jieba's dictionary."""
    import jieba  # its dictionary takes a second to load: only whoever fits pays

    jieba.setLogLevel("ERROR")
    words = jieba.lcut(text) if has_cjk(text) else re.findall(r"[\w'-]+", text)
    return [w.strip() for w in words if w.strip()]
