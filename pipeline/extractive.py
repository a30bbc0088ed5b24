"""The writer without a model: headings, given keywords and sentences, verbatim. It chooses, it never composes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pipeline.llm import one_line
from pipeline.markdown_blocks import blocks
from pipeline.sampling import stratified
from pipeline.sentences import sentence_ends
from pipeline.writing import (
    MAX_COVER_CHARS,
    MAX_DESCRIPTION_CHARS,
    MAX_WHEN_CHARS,
    Described,
    DocumentText,
    DomainTexts,
    Summary,
)

VERSION = "extractive-1"
# What is read of a document: a choice among the first headings and sentences needs no more.
_READ = 40_000
_COVERS = 6
_GENERAL = frozenset(
    {
        *("overview", "introduction", "background", "summary", "contents", "references", "appendix", "notes"),
        *("see also", "changelog", "faq", "example", "examples", "概述", "简介", "介绍", "背景", "摘要", "目录"),
        *("参考", "参考资料", "附录", "说明", "前言", "总结", "示例", "更新日志", "另请参阅", "常见问题"),
    }
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]+|[\u3400-\u4dbf\u4e00-\u9fff]{2,}")


class ExtractiveWriter:
    """Fills the same fields as the model does, from the document's own words."""

    name = "extractive"
    calls_llm = False
    fingerprint = VERSION

    def describe(self, document: DocumentText) -> Described:
        """Covers: headings, then given keywords, then the title. When: the given summary's or the central sentence."""
        text = document.body[:_READ]
        headings, sentences = _parts(text)
        covers = _distinct([*headings, *document.keywords, document.title], MAX_COVER_CHARS)[:_COVERS]
        first = _sentences(document.summary)[:1]
        central = _central(sentences, f"{document.title} {' '.join(headings)}")
        when = _distinct([*first, *central, *headings, document.title], MAX_WHEN_CHARS)[:1]
        return Described(covers=tuple(covers), when_to_retrieve=when[0] if when else "")

    def domain_data(self, domain: DomainTexts) -> str:
        """Titles and covers of the documents: nothing else goes into the summary."""
        return "\n".join(f"{d.title}\t{'|'.join(d.covers)}" for d in stratified(domain.documents))

    def summarise(self, domain: DomainTexts) -> Summary:
        """Description: titles of a stratified sample. When: the most frequent covers."""
        joint = "；" if domain.language == "zh" else "; "
        titles = [d.title or d.key for d in stratified(domain.documents)]
        counts = Counter(c for d in domain.documents for c in d.covers)
        labels = [c for c, _ in sorted(counts.items(), key=lambda pair: -pair[1])]
        return Summary(
            description=_joined(titles, joint, MAX_DESCRIPTION_CHARS),
            when_to_retrieve=_joined(labels or titles, joint, MAX_WHEN_CHARS),
        )


def _parts(text: str) -> tuple[list[str], list[str]]:
    """The headings below the title, and the sentences of the prose."""
    headings: list[tuple[int, str]] = []
    sentences: list[str] = []
    for block in blocks(text):
        if block.level:
            headings.append((block.level, block.path[-1] if block.path else ""))
        elif not block.lines:
            sentences += _sentences(text[block.start : block.end])
    lower = [h for level, h in headings if level > 1]
    return [h for h in (lower or [h for _, h in headings]) if h.casefold() not in _GENERAL], sentences


def _sentences(text: str) -> list[str]:
    cuts = [0, *sentence_ends(text, lines=False), len(text)]
    pieces = (one_line(text[a:b]) for a, b in pairwise(cuts))
    return [p for p in pieces if len(p) >= 6]


def _distinct(candidates: Iterable[str], longest: int) -> list[str]:
    """Those that fit, once each; a candidate is left out rather than cut."""
    lines = (one_line(c) for c in candidates)
    return list({line.casefold(): line for line in lines if line and len(line) <= longest}.values())


def _terms(text: str) -> list[str]:
    found: list[str] = []
    for word in _WORD.findall(text):
        found += [word.lower()] if word[0] < "\u0400" else [word[i : i + 2] for i in range(len(word) - 1)]
    return found


def _central(sentences: Sequence[str], about: str) -> list[str]:
    """The sentence whose terms weigh most by TF-IDF, what the title and headings say counting double."""
    fitting = [s for s in sentences if len(s) <= MAX_WHEN_CHARS]
    bags = [Counter(_terms(s)) for s in fitting]
    document = sum(bags, Counter(_terms(about)) + Counter(_terms(about)))
    inverse = {t: math.log(1 + len(bags) / (1 + n)) for t, n in Counter(t for b in bags for t in b).items()}
    scored = [
        (sum(math.log1p(document[t]) * inverse[t] for t in bag) / (4 + len(bag)), -i)
        for i, bag in enumerate(bags)
        if bag
    ]
    return [fitting[-max(scored)[1]]] if scored else []


def _joined(items: Iterable[str], joint: str, longest: int) -> str:
    """As many whole items as fit."""
    chosen: list[str] = []
    length = 0
    for item in _distinct(items, longest):
        length += len(item) + (len(joint) if chosen else 0)
        if length > longest:
            break
        chosen.append(item)
    return joint.join(chosen)
