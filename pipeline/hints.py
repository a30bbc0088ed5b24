"""What the agent is told in words. Scores never appear here. Pure; Chinese and English say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.relevance import Level
from pipeline.wording import DEGRADED, Words, listed, parts_named, said

# The Chinese sentences are the original design's, word for word.
PRECISE: Words = {
    "zh": "知识库中不存在比上述结果更精准的文档",
    "en": "The knowledge base holds no document more precise than the result above",
}
HIGHLY_RELEVANT: Words = {
    "zh": "当前结果已高度相关，继续检索不太可能找到更精准的文档",
    "en": "The result is already highly relevant; searching on is unlikely to find a more precise document",
}
REFERENCE: Words = {
    "zh": "当前结果为相关参考，如需更精准信息请明确缺少的具体维度",
    "en": "The result is a related reference; if you need something more precise, name the aspect that is missing",
}
DOC_RETRIEVED: Words = {
    "zh": "本次会话已取得过这些文档，内容见之前的结果；请直接使用，确需重看请用 refetch 指定文档",
    "en": "This session already received these documents; use the earlier result, or name them in refetch to see"
    " them again",
}
DOMAIN_RETRIEVED: Words = {
    "zh": "同样的问题在该领域已得到回答；请基于已有信息作答，如仍缺少信息请用 missing_aspect 指出缺少的具体维度",
    "en": "The same question was already answered in this domain; answer from what you have, or name what is missing in"
    " missing_aspect",
}
NOTHING: Words = {
    "zh": "知识库中没有关于此问题的内容；这是检索结论，不是故障。请基于已有信息继续，并说明知识库未覆盖此点",
    "en": "The knowledge base holds nothing about this question; this is a finding, not a failure. Go on with what you"
    " have and say that the knowledge base does not cover it",
}
STOP: Words = {
    "zh": "该领域已连续两次检索无结果，请停止检索；不查全不会被追责，重复检索才会被惩罚",
    "en": "Two searches here have found nothing: stop searching. Not finding everything is not held against you,"
    " searching again is",
}
INCOMPLETE: Words = {
    "zh": "检索暂不完整，未找到不代表不存在；请稍后重试一次",
    "en": "The search is incomplete at the moment, so not finding something does not mean that it is not there;"
    " try once more later",
}

_MESSAGES: dict[str, Words] = {
    "precise": {"zh": "精确命中《{title}》。", "en": "Exact match: “{title}”."},
    "found": {"zh": "找到《{title}》（领域：{domain}）。", "en": "Found “{title}” (domain: {domain})."},
    "supplement": {"zh": "另附补充文档 {count} 篇。", "en": "{count} supplementary document(s) attached."},
    "deduped": {"zh": "未重复返回：{titles}。", "en": "Not handed out again: {titles}."},
    "nearest": {
        "zh": "没有找到答案。最接近的是《{title}》（领域：{domain}），但相关性不足。",
        "en": "No answer was found. The nearest is “{title}” (domain: {domain}), which is not relevant enough.",
    },
    "empty": {"zh": "没有找到答案，也没有接近的文档。", "en": "No answer was found, and no document comes near."},
    "pending": {
        "zh": "另有 {count} 篇文档正在入库，尚不可检索。",
        "en": "{count} document(s) are still being made searchable.",
    },
    "degraded": DEGRADED,
}
_LEVELS = {Level.PRECISE: PRECISE, Level.HIGHLY_RELEVANT: HIGHLY_RELEVANT, Level.REFERENCE: REFERENCE}
_REASONS = {"doc_retrieved": DOC_RETRIEVED, "domain_retrieved": DOMAIN_RETRIEVED}
_GAP = {"zh": "", "en": " "}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What there is to say. ``title`` and ``domain``: of the primary, or of the nearest when nothing was found."""

    level: Level | None
    title: str | None = None
    domain: str | None = None
    supplements: int = 0
    deduped: Sequence[str] = ()
    reason: str | None = None
    empties: int = 0
    pending: int = 0
    degraded: Sequence[str] = ()


def completeness_hint(outcome: Outcome, language: str) -> str:
    """Is it enough, and what to do next: one instruction for each outcome."""
    if outcome.level is Level.DEDUPED:
        return _REASONS[outcome.reason or "doc_retrieved"][language]
    if outcome.level is not None:
        return _LEVELS[outcome.level][language]
    if outcome.degraded:
        return INCOMPLETE[language]
    return STOP[language] if outcome.empties >= 2 else NOTHING[language]


def message(outcome: Outcome, language: str) -> str:
    """What was found, what was withheld, what was not searched: facts, in the question's language."""
    say = partial(said, _MESSAGES, language)
    parts = [say(_main(outcome), title=outcome.title, domain=outcome.domain, titles=listed(outcome.deduped, language))]
    if outcome.supplements:
        parts.append(say("supplement", count=outcome.supplements))
    if outcome.deduped and outcome.level is not Level.DEDUPED:
        parts.append(say("deduped", titles=listed(outcome.deduped, language)))
    if outcome.pending:
        parts.append(say("pending", count=outcome.pending))
    if outcome.degraded:
        parts.append(say("degraded", parts=parts_named(outcome.degraded, language)))
    return _GAP[language].join(parts)


def _main(outcome: Outcome) -> str:
    if outcome.level is Level.DEDUPED:
        return "deduped"
    if outcome.level is not None:
        return "precise" if outcome.level is Level.PRECISE else "found"
    return "nearest" if outcome.title is not None else "empty"
