"""The text of a recall, for a prompt: time, source, how much, the first real lines, and what to do with them.

Stored words are escaped and stand between ``<stored-text>`` tags: nothing in them can pass for an instruction of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from pipeline.prompts import escaped
from pipeline.relevance import Level
from pipeline.wording import DEGRADED, Words, parts_named, said

LEVELS: dict[Level | None, Words] = {
    Level.PRECISE: {"zh": "精确命中", "en": "exact match"},
    Level.HIGHLY_RELEVANT: {"zh": "高度相关", "en": "highly relevant"},
    Level.REFERENCE: {"zh": "相关参考", "en": "reference"},
    Level.DEDUPED: {"zh": "此前已给过", "en": "given before"},
    None: {"zh": "弱相关", "en": "weak"},
}
_SAID: dict[str, Words] = {
    "found": {
        "zh": "已召回 {count} 篇历史记忆（不是当前对话）。请将其事件按各自的原始时间戳插入对话时序：",
        "en": "Recalled {count} past episode(s), not part of the current conversation. Insert their events into the"
        " timeline at their original timestamps:",
    },
    "weak": {
        "zh": "没有找到足够相关的历史记忆，以下 {count} 篇只是最接近的（不是当前对话）。如要使用，请将其事件按各自的原始时间戳"
        "插入对话时序：",
        "en": "No past episode is relevant enough; the {count} nearest follow, not part of the current conversation."
        " To use them, insert their events into the timeline at their original timestamps:",
    },
    "nothing": {
        "zh": "没有找到相关的历史记忆。这是检索结论，不是故障；没有找到不代表没有发生过（已被取出的记忆在放回之前也找不到）。",
        "en": "No past episode was found. This is a finding, not a failure, and does not mean that it did not happen"
        " (episodes that are taken out cannot be found until they are put back).",
    },
    "held_elsewhere": {
        "zh": "找到的历史记忆都已被其他调用方取走，本次没有取出任何一篇。",
        "en": "All past episodes found are held by other callers; none was taken.",
    },
    "head": {"zh": "[{number}] {parts}", "en": "[{number}] {parts}"},
    "events": {"zh": "{count} 条事件", "en": "{count} event(s)"},
    "media": {"zh": "含 {count} 份媒体", "en": "{count} media"},
    "match": {"zh": "其中 {at} {who}说：", "en": "At {at} {who}said: "},
    "total": {
        "zh": "本次给出 {given} 条事件，共 {count} 条。要引用其中的细节，请看对应时间点的原文。",
        "en": "{given} of {count} events are given here. For details, read the original text at its point in time.",
    },
    "more": {"zh": "其余事件请用 cursor 继续读取。", "en": "Read the remaining events with the cursor."},
    "page": {
        "zh": "续读历史记忆（不是当前对话）。请将其事件按各自的原始时间戳插入对话时序：",
        "en": "More events of past episodes, not part of the current conversation. Insert them into the timeline at their"
        " original timestamps:",
    },
    "preview": {
        "zh": "历史记忆（按相关度，不是当前对话）：",
        "en": "Past episodes by relevance, not part of the current conversation:",
    },
    "full": {
        "zh": "这些只是历史片段的开头。要看完整原文，请调用 doc_query，把对应事件按原始时间戳插入对话时序。",
        "en": "These are only the beginnings of past episodes. For the full text call doc_query, and insert the events"
        " into the timeline at their original timestamps.",
    },
    "leased": {
        "zh": "这些记忆已为你取出并保留到 {until}：用完请以 doc_ack 确认（确认后从历史记忆中移除），不用请释放；"
        "逾期自动放回。",
        "en": "These episodes are taken out for you until {until}: acknowledge with doc_ack when used (they then leave"
        " memory), or release them; after that time they go back by themselves.",
    },
    "not_leased": {
        "zh": "检索暂不完整（{parts}不可用），因此没有取出任何记忆；以上仅供阅读。",
        "en": "The search is incomplete ({parts} unavailable), so nothing was taken out; the above is for reading only.",
    },
    "degraded": DEGRADED,
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One episode as the text tells it. ``match``: (time, speaker, line) that says what was asked for."""

    at: str
    source: str
    level: Level | None
    event_count: int
    given: int
    media: Mapping[str, int]
    lines: Sequence[str]
    match: tuple[str, str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Telling:
    """All there is to tell of one answer. ``until``: the lease's deadline; ``refused``: consume was asked and not done."""

    episodes: Sequence[Shown]
    preview: bool = False
    page: bool = False
    more: bool = False
    until: datetime | None = None
    refused: bool = False
    held_elsewhere: bool = False
    degraded: Sequence[str] = field(default=())


def recall_text(told: Telling, language: str) -> str:
    """The answer in words, in the question's language."""
    say = partial(said, _SAID, language)
    blocks = [say(_opening(told), count=len(told.episodes))]
    blocks += [_episode(number, shown, told, language) for number, shown in enumerate(told.episodes, start=1)]
    if told.episodes and told.preview:
        blocks.append(say("full"))
    elif told.episodes:
        count, given = sum(e.event_count for e in told.episodes), sum(e.given for e in told.episodes)
        blocks.append(say("total", count=count, given=given) + (" " + say("more") if told.more else ""))
    if told.until is not None:
        blocks.append(say("leased", until=told.until.isoformat(timespec="seconds")))
    if told.degraded:
        parts = parts_named(told.degraded, language)
        blocks.append(say("not_leased" if told.refused else "degraded", parts=parts))
    return "\n".join(blocks)


def minute(at: str) -> str:
    """``2026-06-07 08:09``, as the event's own clock showed it."""
    return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")


def _opening(told: Telling) -> str:
    if not told.episodes:
        return "held_elsewhere" if told.held_elsewhere else "nothing"
    if told.page:
        return "page"
    if told.preview:
        return "preview"
    return "found" if any(e.level is not None for e in told.episodes) else "weak"


def _episode(number: int, shown: Shown, told: Telling, language: str) -> str:
    say = partial(said, _SAID, language)
    parts = [minute(shown.at) if shown.at else "", escaped(shown.source), say("events", count=shown.event_count)]
    if shown.media:
        kinds = ", ".join(f"{escaped(mime)} ×{count}" for mime, count in shown.media.items())
        parts.append(f"{say('media', count=sum(shown.media.values()))} ({kinds})")
    if not told.page:
        parts.append(LEVELS[shown.level][language])
    lines = [escaped(line) for line in shown.lines]
    if shown.match is not None:
        at, who, line = shown.match
        speaker = f"{escaped(who)} " if who else ""
        lines.append(say("match", at=minute(at), who=speaker) + escaped(line))
    head = say("head", number=number, parts=" · ".join(filter(None, parts)))
    return "\n".join([head, "<stored-text>", *lines, "</stored-text>"]) if lines else head
