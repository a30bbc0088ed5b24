"""The numbered text rules: version → passages.

A rule in use by a generation never changes and never leaves. To change how passages are built, copy the
code of the newest rule, register it under the next number and raise ``RULE_VERSION``: every worker that
starts with it then builds a new generation, and the old one goes on serving with the old rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from pipeline.documents import Passage, VersionText
from pipeline.errors import PipelineError
from pipeline.passages import cut_passages
from pipeline.ports import Tokenizer

Rule: TypeAlias = Callable[[VersionText, Tokenizer, int], list[Passage]]

RULE_VERSION = 1
RULES: dict[int, Rule] = {1: cut_passages}

_NAME = re.compile(r"r([1-9]\d{0,5}):([1-9]\d{0,6})")


class UnknownRule(PipelineError):
    """This code does not have the text rule that was asked for."""


def rule_name(passage_tokens: int, version: int = RULE_VERSION) -> str:
    """The name that goes into fingerprints, e.g. ``r1:400``."""
    return f"r{version}:{passage_tokens}"


def parse_rule(name: str) -> tuple[int, int]:
    """``(version, passage_tokens)`` of a rule's name; raises UnknownRule when it is not one."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UnknownRule(f"{name!r} is not the name of a text rule; names look like 'r1:400'", rule=name)
    return int(match.group(1)), int(match.group(2))


def known_rule(rule: str) -> bool:
    """Whether this code can cut text by the rule of that name; raises UnknownRule for what is no name."""
    return parse_rule(rule)[0] in RULES


def passages_of(rule: str, text: VersionText, tokenizer: Tokenizer) -> list[Passage]:
    """The passages of ``text`` by the rule of that name; raises UnknownRule and WindowTooSmall."""
    version, passage_tokens = parse_rule(rule)
    if version not in RULES:
        known = ", ".join(f"r{number}" for number in sorted(RULES))
        raise UnknownRule(f"text rule r{version} is not in this version of the code (it has {known})", rule=rule)
    return RULES[version](text, tokenizer, passage_tokens)
