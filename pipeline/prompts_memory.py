"""The memory prompt: the layers of memory that exist here, how each is reached, and which one to ask.

Only what is installed is explained. A caller that has a graph memory of its own names its tool, and gets a line for
it. Every sentence is bound to a test of the behaviour it promises (``tests/unit/test_promises.py``).
"""

from __future__ import annotations

import re
from typing import Literal

from pipeline.errors import InvalidInput

VERSION = 1

SENTENCES: dict[str, dict[str, str]] = {
    "title": {"zh": "【分层记忆】", "en": "# Layers of memory"},
    "context": {
        "zh": "对话时序：最近的对话，已在你的上下文里；超出窗口而移出的内容不会自动回来。",
        "en": "The conversation: what is in your context now; what has left the window does not come back by itself.",
    },
    "history": {
        "zh": "历史记忆：存入的事件与原文完整保存；要看完整过程或原文，用 doc_query，它给出事件及各自的原始时间戳，由你插回"
        "对话时序。",
        "en": "Past events: stored events are kept whole, in their original words; for a full process or the wording use"
        " doc_query, which gives the events with their original timestamps for you to insert into the timeline.",
    },
    "graph": {
        "zh": "图记忆（宿主提供）：关系与当前值，用 {graph} 查询。",
        "en": "Graph memory (provided by your host): relations and current values; ask {graph}.",
    },
    "knowledge": {
        "zh": "知识库：成文知识，用 lookup_knowledge 查询。",
        "en": "Knowledge base: written knowledge; ask lookup_knowledge.",
    },
    "choose_history": {
        "zh": "要“原文与过程”，用 doc_query。",
        "en": "For the original wording or a process, use doc_query.",
    },
    "choose_graph": {
        "zh": "要“关系与当前值”，用 {graph}。",
        "en": "For relations and current values, use {graph}.",
    },
    "choose_knowledge": {
        "zh": "要“成文知识”，用 lookup_knowledge。",
        "en": "For finished, written knowledge, use lookup_knowledge.",
    },
    "commit": {
        "zh": "过程结束后，用 doc_commit 存下整段过程或结论，不存单个事实。",
        "en": "When a process is finished, store the whole process or its conclusion with doc_commit, not single facts.",
    },
    "consume": {
        "zh": "doc_query 默认只读；consume=true 会取出该记忆，用完须以 doc_ack 确认，否则逾期放回。",
        "en": "doc_query only reads by default; consume=true takes the episodes out: confirm with doc_ack, or they go"
        " back when the lease lapses.",
    },
    "silence": {
        "zh": "没有找到不代表没有发生过，只代表记忆中没有记录。",
        "en": "Not finding something does not mean that it did not happen, only that memory has no record of it.",
    },
}
_LAYERS = ("context", "history", "graph", "knowledge")
_CHOICES = ("choose_history", "choose_graph", "choose_knowledge", "commit", "consume", "silence")
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def memory_prompt(language: Literal["zh", "en"] = "zh", graph_tool: str | None = None) -> str:
    """The text for a system prompt; ``graph_tool``: the name of the caller's own graph memory tool, if it has one.

    Raises InvalidInput for a name that is none: what is put into a prompt must not be another prompt.
    """
    if graph_tool is not None and not _TOOL_NAME.fullmatch(graph_tool):
        raise InvalidInput("graph_tool must be the name of a tool, like memory_recall", field="graph_tool")
    said = {name: words[language].replace("{graph}", graph_tool or "") for name, words in SENTENCES.items()}
    left_out = set() if graph_tool else {"graph", "choose_graph"}
    layers = [f"- {said[name]}" for name in _LAYERS if name not in left_out]
    choices = [said[name] for name in _CHOICES if name not in left_out]
    return "\n".join([said["title"], *layers, *choices]) + "\n"
