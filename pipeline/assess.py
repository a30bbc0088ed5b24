"""From live candidates to a level for each of the best. Pure: all texts and scores are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.content import Excerpt
from pipeline.fusion import Candidate, fuse, newest
from pipeline.keyword_index import Named
from pipeline.live import LiveDocument, Place
from pipeline.ports import LegResults
from pipeline.relevance import Calibration, Level, LexicalCalibration, Thresholds, features, level_of
from pipeline.terms import TermStatistics, query_terms

# The best of them get a level, and so does whatever is named; whoever else is behind them is below the floor.
EXAMINED = 4
EXAMINED_NAMED = 8
# Passages of one candidate that are read for the share of the question they hold.
COVERING = 2
# From this share of a question's weight on, a passage holds the question.
WHOLE = 0.9
NO_TEXT = Excerpt(text="", offset=0, first_line=1, length=0)


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Live candidates, best first. ``precise``: the one document that L0 names and means, if the map agrees."""

    ordered: Sequence[Candidate]
    documents: Mapping[int, LiveDocument]
    named: frozenset[int]
    covering: frozenset[int]
    refetched: frozenset[int]
    top: int | None


@dataclass(frozen=True, kw_only=True)
class Assessed:
    """One candidate with its relevance and level; level None: below the floor."""

    candidate: Candidate
    document: LiveDocument
    excerpt: Excerpt
    features: Mapping[str, float]
    relevance: float
    named: bool
    level: Level | None


def rank(
    candidates: Sequence[Candidate], live: Mapping[int, LiveDocument], named: Named, refetch: frozenset[str]
) -> Ranked:
    """Live documents in fused order; those that were asked for by key or named for certain come first."""
    found = newest(candidates, {d: document.versions for d, document in live.items()})
    ordered = fuse(found)
    top = ordered[0].document if ordered else None
    refetched = frozenset(d for d, document in live.items() if document.key in refetch)
    known = {c.document for c in found}
    # L0 and L1 are united here: what only L0 names, or a key names, has no passages and stands at the end.
    extra = sorted(((named.documents & live.keys()) | refetched) - known)
    ordered += [Candidate(document=d, version=live[d].live_version) for d in extra]
    certain = named.covering | {d for k in named.keywords if k.code for d in k.documents}
    ordered.sort(key=lambda c: (c.document not in refetched, c.document not in certain))
    return Ranked(
        ordered=ordered,
        documents=live,
        named=named.documents & live.keys(),
        covering=named.covering & live.keys(),
        refetched=refetched,
        top=top,
    )


def examined(ranked: Ranked) -> list[int]:
    """Positions in ``ordered`` that get a level. A named document does wherever it stands: it is never below REFERENCE."""
    certain = ranked.named | ranked.refetched
    behind = [i for i, c in enumerate(ranked.ordered) if i >= EXAMINED and c.document in certain]
    return [*range(min(EXAMINED, len(ranked.ordered))), *behind[:EXAMINED_NAMED]]


def excerpt_places(ranked: Ranked, content_tokens: int) -> list[Place]:
    """Which stretch of each of the best documents to read: all of it when short, else around the best passage."""
    length = content_tokens * 16
    places = []
    for candidate in (ranked.ordered[i] for i in examined(ranked)):
        hit = candidate.hits[0] if candidate.hits else None
        start = 0 if hit is None or hit.end <= length else max(0, (hit.start + hit.end - length) // 2)
        places.append(Place(document=candidate.document, version=candidate.version, start=start, length=length))
    return places


def assess(
    ranked: Ranked,
    legs: LegResults,
    excerpts: Mapping[tuple[int, int], Excerpt],
    question: str,
    statistics: TermStatistics,
    calibration: Calibration,
    thresholds: Thresholds,
    *,
    degraded: bool,
) -> list[Assessed]:
    """A level for each of the best.

    Each is judged against those behind it, as if the better ones were not there: that is what the map was fitted
    on, and a supplement should be an answer by itself.
    """
    wanted = query_terms(question)
    idf = sum(statistics.idf(t) for t in wanted)
    map_ = calibration if legs.dense else LexicalCalibration()
    assessed: list[Assessed] = []
    for at in examined(ranked):
        candidate = ranked.ordered[at]
        certain = candidate.document in ranked.named or candidate.document in ranked.refetched
        document = ranked.documents[candidate.document]
        excerpt = excerpts.get((candidate.document, candidate.version), NO_TEXT)
        cover = statistics.cover(wanted, covering_text(candidate, document.title, excerpt))
        found = features(ranked.ordered[at:], legs, cover, idf)
        relevance = map_.relevance(found)
        level = level_of(
            relevance,
            thresholds,
            named=certain,
            precise=at == 0 and _precise(ranked, candidate.document, relevance, thresholds),
            degraded=degraded,
        )
        if assessed and assessed[0].level is None and not (certain or _holds_it_all(ranked, at, cover)):
            # The primary is the best one. Whoever is behind a best that is no answer gets no chance of its own:
            # four chances would find something for a quarter of the questions that nothing answers.
            level = None
        assessed.append(
            Assessed(
                candidate=candidate,
                document=document,
                excerpt=excerpt,
                features=found,
                relevance=relevance,
                named=candidate.document in ranked.named,
                level=level,
            )
        )
    return assessed


def covering_text(candidate: Candidate, title: str, excerpt: Excerpt) -> str:
    """Title, headings and the best passages: what of a document answers for the words of the question."""
    parts = [title]
    for hit in candidate.hits[:COVERING]:
        start, end = hit.start - excerpt.offset, hit.end - excerpt.offset
        parts += [" ".join(hit.headings), excerpt.text[max(0, start) : max(0, end)]]
    return "\n".join(parts)


def _holds_it_all(ranked: Ranked, at: int, cover: float) -> bool:
    """Does it hold the words of the question as nothing else does?

    Vectors know nothing of a rare name and may put others first. One in a hundred questions has such an answer, as
    many find one by mistake once theirs is gone, and of a thousand that a corpus was asked not one (CMRC 2018).
    """
    own = ranked.ordered[at].lexical
    others = (c.lexical or 0.0 for c in ranked.ordered if c is not ranked.ordered[at])
    return cover >= WHOLE and own is not None and own > max(others, default=0.0)


def _precise(ranked: Ranked, document: int, relevance: float, thresholds: Thresholds) -> bool:
    if ranked.named != {document}:
        return False
    # A single common word may name one document by chance: unless it is all that is asked, L1 must agree.
    return document in ranked.covering or (ranked.top == document and relevance >= thresholds.reference)
