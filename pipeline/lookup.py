"""A question is answered: exact names and both legs → live documents → a level → what may be handed out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline import hints
from pipeline.action_memory import DedupReason
from pipeline.answers import Found, Invocation, LookupAnswer, LookupRequest, NotShown, Withheld
from pipeline.assess import Assessed, assess, excerpt_places, rank
from pipeline.content import Content, choose
from pipeline.errors import InvalidInput
from pipeline.field_checks import checked_question
from pipeline.fusion import fold
from pipeline.handout import Ask, Candidacy, Handout, Stopped
from pipeline.hints import Outcome
from pipeline.keyword_index import Named
from pipeline.lexicon import Lexicon
from pipeline.live import LiveDocument, Liveness
from pipeline.ports import QueryVector
from pipeline.relevance import Level
from pipeline.retrieval_details import retrieval_details
from pipeline.search import LookupLimits, LookupParts, Search, Searched, Trace
from pipeline.serving import Serving, ServingWatch
from pipeline.session_memory import Turn, open_turn
from pipeline.wording import language

__all__ = ["Lookup", "LookupLimits", "LookupParts"]

TOOL = "lookup_knowledge"
# The texts of a request, in the order in which they are checked.
ASKED = ("query", "missing_aspect", "domain", "session_id", "request_id")
# The best one and the next that adds something.
HANDED_OUT = 2


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The live documents, the first of them with a level, and the content of those that are an answer."""

    live: int
    pending: int
    assessed: Sequence[Assessed]
    answers: Sequence[Assessed]
    contents: Mapping[int, Content]


class Lookup:
    """The lookups of one tenant; nothing of another one is ever seen. Thread-safe."""

    def __init__(self, tenant: str, parts: LookupParts) -> None:
        if not tenant:
            raise InvalidInput("a lookup needs a tenant", field="tenant")
        self._tenant = tenant
        self._parts = parts
        self._limits = parts.limits
        self._lexicon = Lexicon(parts.names, tenant)
        thresholds = parts.limits.thresholds
        serving = ServingWatch(
            parts.ledger, self._lexicon, tenant, identity=parts.limits.identity, max_l2=thresholds.max_l2
        )
        self._search = Search(tenant, parts, serving, self._lexicon)

    def lookup(self, request: LookupRequest) -> LookupAnswer:
        """Answers one question. Raises InvalidInput, and Unavailable when PostgreSQL is down."""
        checked_question(request, ASKED, self._limits.max_query_chars)
        trace = Trace()
        with trace.stage("memory"):
            turn = open_turn(self._parts.memory, self._tenant, request)
        if turn.replayed is not None:
            return turn.replayed
        try:
            answer = self._answered(request, turn, trace)
        except BaseException:
            turn.give_up()  # so that a retry of this request runs at once
            raise
        turn.close(answer)
        return answer

    def _answered(self, request: LookupRequest, turn: Turn, trace: Trace) -> LookupAnswer:
        def stopper(serving: Serving, text: str, query: QueryVector | None, named: Named) -> Stopped | None:
            return self._stopped(request, turn, serving, text, query, named)

        serving, searched = self._search.search(request, trace, stopper)
        if searched.stopped is not None:
            judged = Judged(live=0, pending=0, assessed=(), answers=(), contents={})
            answer = _stopped_answer(request, searched.stopped, turn)
        else:
            judged = self._judge(request, serving, searched, trace)
            with trace.stage("memory"):
                handout = turn.hand_out(self._ask(request, searched, judged))
            answer = self._answer(request, searched, judged, handout)
        self._record(request, serving, searched, judged, answer, trace)
        return answer

    def _stopped(
        self,
        request: LookupRequest,
        turn: Turn,
        serving: Serving,
        text: str,
        query: QueryVector | None,
        named: Named,
    ) -> Stopped | None:
        """What the session holds already, when this question repeats another or its domain is closed."""
        repeated = turn.repeated(text, query, serving.unrelated)
        if repeated and self._still_live(serving, {d.key: d.version for d in repeated}):
            return Stopped(documents=repeated)
        if not turn.may_be_closed:
            return None
        domains = {request.domain} if request.domain else self._domains(serving, named)
        closed = turn.closed(domains)
        return Stopped(documents=closed) if closed else None

    def _still_live(self, serving: Serving, versions: Mapping[str, int]) -> bool:
        """A document that has changed or gone since is worth another search."""
        found = self._live(serving, [], tuple(versions))
        live = {d.key: d.live_version for d in found.values()}
        return all(live.get(key) == version for key, version in versions.items())

    def _domains(self, serving: Serving, named: Named) -> set[str]:
        found = self._live(serving, sorted(named.documents), ()) if named.documents else {}
        return {d.domain for d in found.values()}

    def _live(self, serving: Serving, documents: Sequence[int], keys: tuple[str, ...]) -> Mapping[int, LiveDocument]:
        return self._parts.ledger.liveness(
            self._tenant,
            serving.generation.id,
            documents,
            keys=keys,
            domain=None,
            metadata={},
            grace=self._limits.flip_grace_seconds,
        ).documents

    def _judge(self, request: LookupRequest, serving: Serving, searched: Searched, trace: Trace) -> Judged:
        candidates = fold(searched.legs)
        with trace.stage("liveness"):
            liveness = self._parts.ledger.liveness(
                self._tenant,
                serving.generation.id,
                sorted({c.document for c in candidates} | searched.named.documents),
                keys=request.refetch,
                domain=request.domain,
                metadata=request.filter,
                grace=self._limits.flip_grace_seconds,
            )
        with trace.stage("level"):
            ranked = rank(candidates, liveness.documents, searched.named, frozenset(request.refetch))
        with trace.stage("texts"):
            places = excerpt_places(ranked, self._limits.content_tokens)
            excerpts = self._parts.ledger.excerpts(places) if places else {}
        with trace.stage("level"):
            assessed = assess(
                ranked,
                searched.legs,
                excerpts,
                searched.text,
                self._lexicon.statistics,
                serving.calibration,
                self._limits.thresholds,
                degraded=bool(searched.degraded),
            )
        answers = _without_copies(a for a in assessed if a.level is not None)
        with trace.stage("content"):
            contents = {a.document.document: self._content(a) for a in answers}
        return _judged(liveness, len(ranked.ordered), assessed, answers, contents)

    def _content(self, answer: Assessed, only: frozenset[int] | None = None) -> Content:
        candidate = answer.candidate
        return choose(answer.excerpt, candidate.hits, candidate.version, self._limits.content_tokens, only)

    def _ask(self, request: LookupRequest, searched: Searched, judged: Judged) -> Ask:
        ranked = tuple(_candidacy(a, judged.contents[a.document.document]) for a in judged.answers)
        return Ask(
            tenant=self._tenant,
            session_id=request.session_id,
            request_id=request.request_id,
            text=searched.text,
            query=searched.query,
            domain=request.domain or (ranked[0].domain if ranked else None),
            level=judged.answers[0].level if judged.answers else None,
            missing_aspect=request.missing_aspect,
            refetch=request.refetch,
            ranked=ranked,
            limit=HANDED_OUT,
            incomplete=bool(searched.degraded),
        )

    def _answer(self, request: LookupRequest, searched: Searched, judged: Judged, handout: Handout) -> LookupAnswer:
        by_document = {a.document.document: a for a in judged.answers}
        deduped = tuple(_withheld(by_document[r.document].document, r.reason) for r in handout.refused)
        # Memory has marked what it granted, so exactly that is shown.
        found = tuple(
            self._found(by_document[g.document], judged.contents[g.document], g.passages) for g in handout.granted
        )
        best = by_document[handout.granted[0].document] if found else next(iter(judged.answers), None)
        level = (best.level if found else Level.DEDUPED) if best is not None else None
        nearest = best or next(iter(judged.assessed), None)
        outcome = Outcome(
            level=level,
            title=nearest.document.title if nearest else None,
            domain=nearest.document.domain if nearest else None,
            supplements=max(0, len(found) - 1),
            deduped=[d.title for d in deduped],
            reason=deduped[0].reason if deduped else None,
            empties=handout.empties,
            pending=judged.pending,
            degraded=searched.degraded,
        )
        spoken = language(request.query)
        return LookupAnswer(
            invocation_id=str(uuid.uuid4()),
            found=level is not None,
            relevance_level=level,
            completeness_hint=hints.completeness_hint(outcome, spoken),
            message=hints.message(outcome, spoken),
            primary=found[0] if found else None,
            supplement=found[1:],
            retrieved_domains_this_session=handout.domains,
            deduped=deduped,
            not_shown=NotShown(
                below_floor=judged.live - sum(a.level is not None for a in judged.assessed),
                pending_in_domain=judged.pending,
            ),
            action_memory=handout.status,
            degraded=searched.degraded or None,
        )

    def _found(self, answer: Assessed, content: Content, passages: tuple[int, ...] | None) -> Found:
        if passages is not None:
            content = self._content(answer, frozenset(passages))
        document = answer.document
        return Found(
            key=document.key,
            title=document.title,
            domain=document.domain,
            content=content.text,
            citation=content.citation,
            source=document.source,
            updated_at=document.updated_at,
            when_to_retrieve=document.when_to_retrieve,
        )

    def _record(
        self,
        request: LookupRequest,
        serving: Serving,
        searched: Searched,
        judged: Judged,
        answer: LookupAnswer,
        trace: Trace,
    ) -> None:
        self._parts.invocations.put(
            Invocation(
                id=answer.invocation_id,
                tenant=self._tenant,
                session_id=request.session_id,
                tool_name=TOOL,
                query=request.query,
                relevance_level=answer.relevance_level,
                dedup_reason=answer.deduped[0].reason if answer.deduped else None,
                retrieval_details=retrieval_details(
                    request, searched, judged.assessed, judged.live, answer, serving.calibration.kind
                ),
                generation=serving.generation.id,
                calibration=serving.calibration.version,
                latency_ms=trace.finish(),
                at=datetime.now(UTC),
            )
        )


def _judged(
    liveness: Liveness,
    live: int,
    assessed: Sequence[Assessed],
    answers: Sequence[Assessed],
    contents: Mapping[int, Content],
) -> Judged:
    return Judged(live=live, pending=liveness.pending, assessed=assessed, answers=answers, contents=contents)


def _without_copies(answers: Iterable[Assessed]) -> list[Assessed]:
    """A supplement must add something: the same passage under another key does not."""
    kept: list[Assessed] = []
    seen: set[str] = set()
    for answer in answers:
        own = answer.candidate.hits[0].hash if answer.candidate.hits else ""
        if own and own in seen:
            continue
        seen.add(own)
        kept.append(answer)
    return kept


def _candidacy(answer: Assessed, content: Content) -> Candidacy:
    document = answer.document
    return Candidacy(
        document=document.document,
        version=answer.candidate.version,
        key=document.key,
        title=document.title,
        domain=document.domain,
        passages=content.passages,
    )


def _stopped_answer(request: LookupRequest, stopped: Stopped, turn: Turn) -> LookupAnswer:
    """DEDUPED without a search: what was handed out before is listed, its text is not."""
    reason = DedupReason.DOMAIN_RETRIEVED
    deduped = tuple(Withheld(key=d.key, title=d.title, domain=d.domain, reason=reason) for d in stopped.documents)
    outcome = Outcome(level=Level.DEDUPED, deduped=[d.title for d in deduped], reason=reason)
    spoken = language(request.query)
    return LookupAnswer(
        invocation_id=str(uuid.uuid4()),
        found=True,
        relevance_level=Level.DEDUPED,
        completeness_hint=hints.completeness_hint(outcome, spoken),
        message=hints.message(outcome, spoken),
        primary=None,
        retrieved_domains_this_session=turn.domains,
        deduped=deduped,
        action_memory=turn.status,
    )


def _withheld(document: LiveDocument, reason: str) -> Withheld:
    return Withheld(key=document.key, title=document.title, domain=document.domain, reason=reason)
