"""What every text for an agent shares: the language it is written in, and how it names the parts that are down. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pipeline.terms import has_cjk

Words: TypeAlias = dict[str, str]

DEGRADED: Words = {
    "zh": "注意：{parts}暂不可用，结果可能不完整。",
    "en": "Note: {parts} unavailable, the result may be incomplete.",
}
_PARTS: dict[str, Words] = {
    "encoder": {"zh": "语义编码", "en": "semantic encoding"},
    "vectors": {"zh": "向量检索", "en": "vector search"},
    "lexical": {"zh": "词面检索", "en": "lexical search"},
    "rebuilding": {"zh": "正在重建的向量库", "en": "the vector collection (being rebuilt)"},
    "keywords": {"zh": "关键词索引", "en": "the keyword index"},
}
_JOIN: Words = {"zh": "、", "en": ", "}


def language(question: str) -> str:
    """``zh`` or ``en``: the language in which a question is answered."""
    return "zh" if has_cjk(question) else "en"


def said(sentences: Mapping[str, Words], language: str, name: str, /, **values: object) -> str:
    """The named sentence in that language, its places filled with ``values``."""
    return sentences[name][language].format(**values)


def listed(items: Iterable[str], language: str) -> str:
    """The items as one enumeration."""
    return _JOIN[language].join(items)


def parts_named(parts: Iterable[str], language: str) -> str:
    """The parts of a search, as ``degraded`` names them, in words."""
    return listed((_PARTS[part][language] for part in parts), language)
