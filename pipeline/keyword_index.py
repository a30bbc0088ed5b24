"""L0: which documents does a question name exactly? A sharded Aho-Corasick index over normalised keywords."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ahocorasick_rs import AhoCorasick, MatchKind

from pipeline.terms import has_cjk, is_code, normalise, without_question_words

# Building an automaton holds the interpreter lock (100,000 keywords in one: 1.4 s). In shards only those that
# changed are built again, a dozen milliseconds each, while lookups go on in between.
SHARDS = 64


@dataclass(frozen=True, kw_only=True)
class Keyword:
    """One match in a normalised question: ``text[start:end]`` is the keyword and names these documents."""

    text: str
    start: int
    end: int
    documents: frozenset[int]

    @property
    def code(self) -> bool:
        """Looks like a code, a version or an identifier."""
        return is_code(self.text)


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a question names. ``covering``: documents whose keywords are all of the question but question words."""

    keywords: tuple[Keyword, ...] = ()
    covering: frozenset[int] = frozenset()

    @property
    def documents(self) -> frozenset[int]:
        """Every document that is named."""
        return frozenset().union(*(k.documents for k in self.keywords))

    def by(self, document: int) -> tuple[Keyword, ...]:
        """The keywords that name one document."""
        return tuple(k for k in self.keywords if document in k.documents)


@dataclass(frozen=True, kw_only=True)
class _Built:
    automaton: AhoCorasick
    patterns: tuple[str, ...]
    documents: tuple[frozenset[int], ...]


class KeywordIndex:
    """Keywords of many documents, found in a question in one pass.

    One thread changes it (``put``, ``drop``, then ``build``); any number may ``match`` meanwhile and see the
    state of the last ``build`` of each shard.
    """

    def __init__(self) -> None:
        self._holders: list[dict[str, set[int]]] = [defaultdict(set) for _ in range(SHARDS)]
        self._built: list[_Built | None] = [None] * SHARDS
        self._dirty: set[int] = set()
        self._keywords: dict[int, frozenset[str]] = {}

    def __len__(self) -> int:
        return sum(len(h) for h in self._holders)

    def put(self, document: int, keywords: Iterable[str]) -> None:
        """Says which keywords name the document; those of before are forgotten."""
        new = frozenset(k for k in map(normalise, keywords) if acceptable(k))
        old = self._keywords.get(document, frozenset())
        for keyword in old - new:
            self._forget(document, keyword)
        for keyword in new - old:
            self._holders[self._mark(keyword)][keyword].add(document)
        self._keywords[document] = new

    def drop(self, document: int) -> None:
        """Forgets a document."""
        for keyword in self._keywords.pop(document, frozenset()):
            self._forget(document, keyword)

    def build(self) -> Iterator[int]:
        """Builds what changed, one shard a step, so that the caller can let others run in between."""
        for number in sorted(self._dirty):
            self._built[number] = _build(self._holders[number])
            self._dirty.discard(number)
            yield number

    def match(self, text: str) -> Named:
        """What the question names, longest first; a keyword inside a longer one does not count."""
        question = normalise(text)
        found = [k for built in self._built if built is not None for k in _matches(built, question)]
        found.sort(key=lambda k: (k.start - k.end, k.start))
        kept: list[Keyword] = []
        for keyword in found:
            if not any(k.start <= keyword.start and keyword.end <= k.end and k.text != keyword.text for k in kept):
                kept.append(keyword)
        return Named(keywords=tuple(kept), covering=_covering(question, kept))

    def _mark(self, keyword: str) -> int:
        number = hash(keyword) % SHARDS
        self._dirty.add(number)
        return number

    def _forget(self, document: int, keyword: str) -> None:
        holders = self._holders[self._mark(keyword)]
        holders[keyword].discard(document)
        if not holders[keyword]:
            del holders[keyword]


def acceptable(keyword: str) -> bool:
    """Long enough to mean something: two CJK characters, two characters with a letter, or three digits."""
    if has_cjk(keyword):
        return len(keyword) >= 2
    if any(c.isalpha() for c in keyword):
        return len(keyword) >= 2
    return sum(c.isdigit() for c in keyword) >= 3


def _build(holders: Mapping[str, set[int]]) -> _Built | None:
    if not holders:
        return None
    patterns = tuple(holders)
    return _Built(
        automaton=AhoCorasick(patterns, matchkind=MatchKind.Standard, store_patterns=False),
        patterns=patterns,
        documents=tuple(frozenset(holders[p]) for p in patterns),
    )


def _matches(built: _Built, question: str) -> Iterator[Keyword]:
    for index, start, end in built.automaton.find_matches_as_indexes(question, overlapping=True):
        if _whole(question, start, end):
            yield Keyword(text=built.patterns[index], start=start, end=end, documents=built.documents[index])


def _whole(text: str, start: int, end: int) -> bool:
    """ASCII ends need a word boundary there, CJK ones do not; 7.5 is not inside 7.5.1."""
    if _wordy(text[start]) and start > 0:
        before = text[start - 1]
        if _wordy(before) or (before in ".-" and text[start].isdigit() and start > 1 and text[start - 2].isdigit()):
            return False
    if _wordy(text[end - 1]) and end < len(text):
        after = text[end]
        if _wordy(after) or (after == "." and text[end - 1].isdigit() and text[end + 1 : end + 2].isdigit()):
            return False
    return True


def _wordy(character: str) -> bool:
    return (character.isalnum() or character == "_") and not has_cjk(character)


def _covering(question: str, keywords: Iterable[Keyword]) -> frozenset[int]:
    wanted = without_question_words(question)
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for keyword in keywords:
        for document in keyword.documents:
            spans[document].append((keyword.start, keyword.end))
    return frozenset(d for d, found in spans.items() if not _rest(wanted, found))


def _rest(wanted: str, spans: Iterable[tuple[int, int]]) -> bool:
    left = list(wanted)
    for start, end in spans:
        left[start:end] = " " * (end - start)
    return any(c.isalnum() for c in left)
