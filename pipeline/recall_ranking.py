"""From what was found to live episodes in order, each with its level: exact strings first, then cues and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline import recall_relevance
from pipeline.episode_cache import Stored
from pipeline.episode_view import EpisodeView
from pipeline.fusion import Candidate, fold, fuse, newest
from pipeline.recall_answers import RecallRequest
from pipeline.recall_cues import bonus
from pipeline.recall_search import Recalled, RecallParts, within
from pipeline.relevance import Level
from pipeline.remembered import LiveEpisode, RawEvents
from pipeline.terms import TermStatistics, query_terms

COVERING = 2
# Exact strings have a way of their own here, so words weigh less than among articles: 0.957 of the questions of the
# realistic set right first from here on, 0.913 with the 0.3 that articles give them (ops/bench/recall.py).
DENSE_WEIGHT = 0.8
# Nothing is known of how common a word is among episodes: every word weighs the same.
EVEN = TermStatistics()


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """One live episode with its level. ``said``: the exact strings of the question that it says."""

    candidate: Candidate
    episode: LiveEpisode
    view: EpisodeView
    events: RawEvents
    said: frozenset[str]
    relevance: float
    level: Level | None

    @property
    def matches(self) -> tuple[int, ...]:
        """The events that say the question's strings, else those of its best passage."""
        if self.said:
            return self.view.saying(self.said)
        hits = self.candidate.hits
        return self.view.events_between(hits[0].start, hits[0].end) if hits else ()


class Ranking:
    """The rankings of one tenant."""

    def __init__(self, tenant: str, parts: RecallParts) -> None:
        self._tenant = tenant
        self._parts = parts
        self._limits = parts.limits

    def examine(self, request: RecallRequest, search: Recalled) -> list[Remembered]:
        """Live episodes in their final order, as many as a level is worth the while for."""
        candidates = fold(search.legs)
        live = self._parts.ledger.live(
            search.serving.generation.id,
            sorted({c.document for c in candidates} | {d for d, _ in search.said}),
            within(self._tenant, request),
            self._limits.flip_grace_seconds,
        )
        ordered = self._ordered(candidates, live, search)
        most = self._limits.examined_to_hold if request.consume else max(self._limits.examined, request.top_k)
        places = [(c.document, c.version) for c in ordered[:most]]
        stored = self._parts.stored.get(places)
        examined = [c for c in ordered[:most] if (c.document, c.version) in stored]
        cued = [
            replace(c, score=c.score + bonus(request.query, stored[c.document, c.version].events)) for c in examined
        ]
        cued.sort(key=lambda c: (-_pin(c, search), -c.score, c.document))
        return self._levelled(request, search, cued, ordered, live, stored)

    def _ordered(
        self, candidates: Sequence[Candidate], live: Mapping[int, LiveEpisode], search: Recalled
    ) -> list[Candidate]:
        """Whoever says an exact string comes first: that is a yes or no, and no score can outweigh it."""
        found = fuse(newest(candidates, {d: e.versions for d, e in live.items()}), dense_weight=DENSE_WEIGHT)
        known = {c.document for c in found}
        lowest = min((c.score for c in found), default=0.0)
        found += [
            Candidate(document=d, version=v, score=lowest)
            for d, v in sorted(search.said)
            if d in live and d not in known and v == live[d].live_version
        ]
        return sorted(found, key=lambda c: (-_pin(c, search), -c.score, c.document))

    def _levelled(
        self,
        request: RecallRequest,
        search: Recalled,
        ordered: Sequence[Candidate],
        everyone: Sequence[Candidate],
        live: Mapping[int, LiveEpisode],
        stored: Mapping[tuple[int, int], Stored],
    ) -> list[Remembered]:
        wanted = query_terms(request.query)
        most_said = max((_pin(c, search) for c in ordered), default=0)
        alone = sum(_pin(c, search) == most_said for c in everyone) == 1
        beyond = [c for c in everyone if c.document not in {o.document for o in ordered}]
        found = []
        for at, candidate in enumerate(ordered):
            episode = live[candidate.document]
            raw, view = _sourced(stored[candidate.document, candidate.version], episode)
            cover = EVEN.cover(wanted, _covering(candidate, episode.title, view))
            against = [candidate, *ordered[at + 1 :], *beyond]
            value = recall_relevance.relevance(recall_relevance.features(against, search.legs, cover), search.legs)
            level = recall_relevance.level(
                value,
                self._limits.thresholds,
                exact=most_said > 0 and _pin(candidate, search) == most_said,
                alone=alone,
                degraded=bool(search.degraded),
            )
            found.append(
                Remembered(
                    candidate=candidate,
                    episode=episode,
                    view=view,
                    events=raw,
                    said=search.said.get((candidate.document, candidate.version), frozenset()),
                    relevance=value,
                    level=level,
                )
            )
        return [r for r in found if r.level is not None or r.relevance >= recall_relevance.WEAK or r.said]


def _sourced(stored: Stored, episode: LiveEpisode) -> tuple[RawEvents, EpisodeView]:
    """Where no event names its source, the document's."""
    view = stored.view if stored.view.source else replace(stored.view, source=episode.source)
    return stored.events, view


def _pin(candidate: Candidate, search: Recalled) -> int:
    """How many of the question's exact strings it says."""
    return len(search.said.get((candidate.document, candidate.version), ()))


def _covering(candidate: Candidate, title: str, view: EpisodeView) -> str:
    return "\n".join([title, *(view.stretch(h.start, h.end) for h in candidate.hits[:COVERING])])
