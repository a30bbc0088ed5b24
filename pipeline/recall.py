"""A question to memory: exact strings and both legs → live episodes → a level → their events, or a hold on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipeline.answers import Invocation
from pipeline.episode_view import EpisodeView, clipped, view_of
from pipeline.errors import InvalidInput
from pipeline.field_checks import checked_question
from pipeline.live import ServingRow
from pipeline.recall_answers import Lease, RecallAnswer, RecalledEpisode, RecallRequest
from pipeline.recall_paging import Page, Place, decode, encode, fill
from pipeline.recall_ranking import Ranking, Remembered
from pipeline.recall_search import Recalled, RecallLimits, RecallParts, RecallSearch, within
from pipeline.recall_text import Shown, Telling, recall_text
from pipeline.relevance import Level
from pipeline.remembered import Leased, LiveEpisode, Narrowing, RawEvents
from pipeline.search import Trace
from pipeline.wording import language

__all__ = ["Recall", "RecallLimits", "RecallParts"]

TOOL = "doc_query"
# The texts of a request, in the order in which they are checked.
ASKED = ("query", "session_id", "domain", "user_id", "agent_id", "cursor")
PREVIEWED = 3
# Which of several callers gets an episode is decided in PostgreSQL; who lost looks again, a few times.
LEASE_TRIES = 4


class Recall:
    """The recalls of one tenant; nothing of another one is ever seen. Thread-safe."""

    def __init__(self, tenant: str, parts: RecallParts) -> None:
        if not tenant:
            raise InvalidInput("a recall needs a tenant", field="tenant")
        self._tenant = tenant
        self._parts = parts
        self._limits = parts.limits
        self._searching = RecallSearch(tenant, parts)
        self._ranking = Ranking(tenant, parts)

    def recall(self, request: RecallRequest) -> RecallAnswer:
        """Answers one question, or goes on at a cursor. Raises InvalidInput, Conflict, Unavailable."""
        self._check(request)
        if request.cursor is not None:
            return self._continue(request)
        trace = Trace()
        search = self._searching.search(request, trace)
        with trace.stage("rank"):
            found = self._ranking.examine(request, search)
        leased, found, raced = self._hold(request, search, found) if request.consume else (None, found, False)
        answer = self._answer(request, search, found, leased, raced)
        self._record(request, search, found, answer, trace)
        return answer

    def acknowledge(self, lease: str) -> tuple[str, ...]:
        """Consumes what a lease holds; the keys. Raises Conflict."""
        return self._parts.ledger.acknowledge(self._tenant, lease)

    def release(self, lease: str) -> tuple[str, ...]:
        """Gives back what a lease holds; the keys. Raises Conflict."""
        return self._parts.ledger.release(self._tenant, lease)

    def _check(self, request: RecallRequest) -> None:
        checked_question(request, ASKED, self._limits.max_query_chars, may_be_empty=request.cursor is not None)
        if not 1 <= request.top_k <= self._limits.max_top_k:
            most = self._limits.max_top_k
            raise InvalidInput(f"top_k must be 1 to {most}", field="top_k", limit=most)
        if request.consume and request.preview:
            raise InvalidInput("a preview is read-only: it cannot consume", field="consume")

    def _hold(
        self, request: RecallRequest, search: Recalled, found: list[Remembered]
    ) -> tuple[Leased | None, list[Remembered], bool]:
        """A lease on the best that nobody holds; nothing while a part is down. The last: were they all held?"""
        if search.degraded:
            return None, found, False
        for _ in range(LEASE_TRIES):
            if not found:
                break
            leased = self._parts.ledger.lease(
                search.serving.generation.id,
                [r.episode.document for r in found],
                request.top_k,
                within(self._tenant, request),
                request.session_id,
                self._limits.lease_seconds,
            )
            if leased is not None:
                held = dict(leased.versions)
                return leased, [r for r in found if held.get(r.episode.document) == r.candidate.version], False
            found = self._ranking.examine(request, search)
        return None, [], True

    def _answer(
        self, request: RecallRequest, search: Recalled, found: list[Remembered], leased: Leased | None, raced: bool
    ) -> RecallAnswer:
        chosen = found[: PREVIEWED if request.preview else request.top_k]
        page = self._page(chosen) if not request.preview else Page(slices=(), rest=())
        slices = page.slices or tuple((0, 0) for _ in chosen)
        episodes = tuple(_episode(r, r.matches, slice_) for r, slice_ in zip(chosen, slices, strict=True))
        cursor = encode(self._tenant, page.rest, leased.lease if leased else None) if page.rest else None
        told = Telling(
            episodes=[_shown(r, e) for r, e in zip(chosen, episodes, strict=True)],
            preview=request.preview,
            more=cursor is not None,
            until=leased.deadline if leased else None,
            refused=request.consume and bool(search.degraded),
            held_elsewhere=raced,
            degraded=search.degraded,
        )
        return RecallAnswer(
            invocation_id=str(uuid.uuid4()),
            text=recall_text(told, _language(request.query, episodes)),
            episodes=episodes,
            lease=None if leased is None else _lease(leased, chosen),
            cursor=cursor,
            degraded=search.degraded or None,
        )

    def _page(self, chosen: Sequence[Remembered]) -> Page:
        places = [Place(document=r.episode.document, version=r.candidate.version, start=0) for r in chosen]
        return fill(places, [r.view.texts for r in chosen], self._limits.page_events, self._limits.page_characters)

    def _continue(self, request: RecallRequest) -> RecallAnswer:
        """The next events of the episodes of an earlier answer, as long as they may be seen."""
        trace = Trace()
        places, lease = decode(self._tenant, request.cursor or "")
        serving = self._searching.serving()
        live = self._parts.ledger.live(
            serving.generation.id,
            [p.document for p in places],
            Narrowing(tenant=self._tenant),
            self._limits.flip_grace_seconds,
            lease,
        )
        places = [p for p in places if p.document in live]
        stored = self._parts.stored.get([(p.document, p.version) for p in places])
        places = [p for p in places if (p.document, p.version) in stored]
        views = [stored[p.document, p.version].view for p in places]
        page = fill(places, [v.texts for v in views], self._limits.page_events, self._limits.page_characters)
        episodes = tuple(
            _slice(live[p.document], p.version, view, stored[p.document, p.version].events, slice_, None, ())
            for p, view, slice_ in zip(places, views, page.slices, strict=True)
        )
        told = Telling(episodes=[_shown_page(e) for e in episodes if e.events], page=True, more=bool(page.rest))
        answer = RecallAnswer(
            invocation_id=str(uuid.uuid4()),
            text=recall_text(told, language(" ".join(e.summary for e in episodes))),
            episodes=tuple(e for e in episodes if e.events),
            cursor=encode(self._tenant, page.rest, lease) if page.rest else None,
        )
        self._put(request, answer, None, {"page_of": [e.key for e in answer.episodes]}, serving, trace)
        return answer

    def _record(
        self, request: RecallRequest, search: Recalled, found: Sequence[Remembered], answer: RecallAnswer, trace: Trace
    ) -> None:
        best = answer.episodes[0].relevance_level if answer.episodes else None
        details = {
            "relevance_level": best,
            "strings": list(search.strings.all),
            "candidates": [
                {
                    "document": r.episode.document,
                    "version": r.candidate.version,
                    "key": r.episode.key,
                    "level": r.level,
                    "relevance": round(r.relevance, 4),
                    "score": round(r.candidate.score, 4),
                    "dense": r.candidate.dense,
                    "lexical": r.candidate.lexical,
                    "said": sorted(r.said),
                }
                for r in found
            ],
            "stages": {
                "dense_passages": len(search.legs.dense),
                "lexical_passages": None if search.legs.lexical is None else len(search.legs.lexical),
                "handed_out": len(answer.episodes),
            },
            "top_k": request.top_k,
            "consume": request.consume,
            "preview": request.preview,
            "lease": answer.lease.lease if answer.lease else None,
            "domain": request.domain,
            "degraded": list(search.degraded),
        }
        self._put(request, answer, best, details, search.serving, trace)

    def _put(
        self,
        request: RecallRequest,
        answer: RecallAnswer,
        level: Level | None,
        details: Mapping[str, Any],
        serving: ServingRow,
        trace: Trace,
    ) -> None:
        self._parts.invocations.put(
            Invocation(
                id=answer.invocation_id,
                tenant=self._tenant,
                session_id=request.session_id,
                tool_name=TOOL,
                query=request.query,
                relevance_level=level,
                dedup_reason=None,
                retrieval_details=details,
                generation=serving.generation.id,
                calibration=None,
                latency_ms=trace.finish(),
                at=datetime.now(UTC),
            )
        )


def _episode(remembered: Remembered, matches: tuple[int, ...], slice_: tuple[int, int]) -> RecalledEpisode:
    return _slice(
        remembered.episode,
        remembered.candidate.version,
        remembered.view,
        remembered.events,
        slice_,
        remembered.level,
        matches,
    )


def _slice(
    episode: LiveEpisode,
    version: int,
    view: EpisodeView,
    events: RawEvents,
    slice_: tuple[int, int],
    level: Level | None,
    matches: tuple[int, ...],
) -> RecalledEpisode:
    start, end = slice_
    return RecalledEpisode(
        key=episode.key,
        title=episode.title,
        domain=episode.domain,
        version=version,
        at=view.at,
        source=view.source,
        summary=view.summary,
        relevance_level=level,
        event_count=view.event_count,
        first_event=start,
        matched_events=matches,
        media=view.media,
        events=tuple(dict(e) for e in events[start:end]),
    )


def _language(query: str, episodes: Sequence[RecalledEpisode]) -> str:
    """The question's; a number alone has none, so then that of what was found."""
    spoken = any(c.isalpha() for c in query)
    return language(query if spoken else " ".join(e.summary for e in episodes) or query)


def _shown(remembered: Remembered, episode: RecalledEpisode) -> Shown:
    return Shown(
        at=episode.at,
        source=episode.source,
        level=episode.relevance_level,
        event_count=episode.event_count,
        given=len(episode.events),
        media=episode.media,
        lines=remembered.view.lines,
        match=_match(remembered, episode.matched_events),
    )


def _match(remembered: Remembered, matches: Iterable[int]) -> tuple[str, str, str] | None:
    """Time, speaker and line of the first event that says an exact string, unless it is among the first lines."""
    if not remembered.said:
        return None
    for index in matches:
        event = remembered.events[index]
        said = next(s for s in remembered.view.texts[index].splitlines() if s.strip())
        if clipped(said) not in remembered.view.lines:
            return event["at"], event.get("user_id") or event.get("agent_id") or "", clipped(said)
    return None


def _shown_page(episode: RecalledEpisode) -> Shown:
    texts = view_of(episode.events)
    return Shown(
        at=episode.events[0]["at"] if episode.events else episode.at,
        source=episode.source,
        level=None,
        event_count=episode.event_count,
        given=len(episode.events),
        media={},
        lines=texts.lines,
    )


def _lease(leased: Leased, chosen: Sequence[Remembered]) -> Lease:
    return Lease(lease=leased.lease, deadline=leased.deadline, keys=tuple(r.episode.key for r in chosen))
