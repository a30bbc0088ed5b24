"""The prompts: versioned texts, Chinese and English, and the envelope that keeps documents from giving orders."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Literal, TypeAlias

from pipeline.llm import one_line
from pipeline.prompts_executor import executor_prompt
from pipeline.prompts_memory import memory_prompt

Language: TypeAlias = Literal["zh", "en"]

# A text that changes gets a new version here (a test compares hashes): what was written with the old one is then
# stale, and rewritten at the configured pace.
VERSIONS = {"describe": "describe-1", "domain": "domain-1", "planner": "planner-1", "repair": "repair-1"}

RULE = {"zh": "优先检索一次，勿重复", "en": "search once first, do not repeat"}


@cache
def text(name: str, language: Language) -> str:
    """The text of a prompt."""
    return files("pipeline.prompt_texts").joinpath(f"{name}.{language}.md").read_text(encoding="utf-8").strip()


def language_of(sample: str) -> Language:
    """``zh`` when a fifth of the letters are Chinese characters."""
    letters = [c for c in sample if c.isalpha()]
    chinese = sum(1 for c in letters if "\u4e00" <= c <= "\u9fff" or "\u3400" <= c <= "\u4dbf")
    return "zh" if letters and chinese * 5 >= len(letters) else "en"


def escaped(value: str) -> str:
    """A text in which nothing can open or close a tag of the envelope."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def element(tag: str, value: str, *, line: bool = True) -> str:
    """``<tag>value</tag>`` with the value escaped, on one line unless told otherwise; nothing for no value."""
    value = one_line(value) if line else value.strip()
    return f"<{tag}>{escaped(value)}</{tag}>" if value else ""


def with_rule(when_to_retrieve: str, language: Language) -> str:
    """The sentence, ended by the rule of the planner exactly once, whatever the writer wrote."""
    rule = RULE[language]
    bare = one_line(when_to_retrieve)
    for each in RULE.values():
        bare = bare.replace(each, " ")
    bare = one_line(bare).strip(" .;。；,，")
    if not bare:
        return rule
    return f"{bare}；{rule}" if language == "zh" else f"{bare}; {rule}"


PromptText: TypeAlias = Callable[[Language], str]

# What GET /v1/prompts/{name} serves: whoever adds a prompt adds a line.
SERVED: dict[str, PromptText] = {
    "planner": partial(text, "planner"),
    "executor": executor_prompt,
    "memory": memory_prompt,
}
