"""Words of a text, the way exact matching and term statistics see them. Pure; Chinese and English alike."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+", re.UNICODE)
_SPACE = re.compile(r"\s+")
_HAS_CJK = re.compile(rf"[{_CJK}]")

# What people wrap a question in. It says nothing about the subject, so it counts for neither cover nor IDF.
_QUESTION_CJK = (  # noqa: SIM905 - ninety quoted words in brackets would be unreadable
    "为什么 怎么办 怎么样 什么时候 什么意思 是什么 有哪些 如何 怎么 怎样 什么 为何 哪些 哪个 哪里 哪儿 哪种"
    " 多少 几个 是否 能否 可否 请问 请教 一下 告诉我 我想 想要 需要 应该 可以 能不能 可不可以 会不会 有没有 是不是"
    " 意思 代表 表示 含义 解释 说明 介绍 报错 错误码 错误 解决 处理 怎么处理 怎么解决 是啥"
    " 啥意思 了解 的 了 吗 呢 吧 啊 呀 啥 请"
).split()
_QUESTION_ASCII = frozenset(
    "what whats what's why how when where which who whom whose is are was were be been am do does did can could"  # noqa: SIM905
    " should"
    " would will shall may might must a an the of to in on at by for with from into about and or not no it its"
    " this that these those i me my we us our you your they them their there here have has had get gets got"
    " please tell show explain describe mean means meaning error code errors need want if then than so as any some".split()
)
_QUESTION = re.compile(
    "|".join(sorted(map(re.escape, _QUESTION_CJK), key=len, reverse=True))
    + r"|(?<![a-z0-9_'])(?:"
    + "|".join(sorted(map(re.escape, _QUESTION_ASCII), key=len, reverse=True))
    + r")(?![a-z0-9_])"
)

_CODE = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"[A-Z][A-Z0-9]*(?:[_-][A-Z0-9]+)*[_-]?\d{2,}(?:[_-][A-Z0-9]+)*"  # PAY-4031, E1205, ORA-00942
    r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"  # ERR_TIMEOUT
    r"|[a-z][a-z0-9]*(?:_[a-z0-9]+){1,}"  # tidb_txn_mode
    r"|[vV]?\d+\.\d+\.\d+(?:-[A-Za-z0-9.]+)?"  # v7.5.1
    r"|0x[0-9a-fA-F]{4,}"
    r")(?![A-Za-z0-9_])"
)
_NUMBER = re.compile(r"(?<![\w.])\d{4,8}(?![\w]|\.\d)", re.ASCII)
# A bare number in running text is a code only where the text says so; otherwise it is a port, a year or a count.
_NUMBER_SAYS_SO = re.compile(
    r"(?:error|err|errno|code|错误码?|代码|故障码|状态码|ERROR)[\s:：#(（=`\"']{0,4}(?:code|number|no\.?|号|代码)?[\s:：#(（=`\"']{0,3}"
    r"(\d{3,8})(?![\w]|\.\d)",
    re.IGNORECASE | re.ASCII,
)


def normalise(text: str) -> str:
    """NFKC, case folded, white space collapsed: full-width and capital forms of one word become the same."""
    if text.isascii():
        return _SPACE.sub(" ", text.lower()).strip()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _SPACE.sub(" ", folded).strip()


def has_cjk(text: str) -> bool:
    """Is there any Chinese, Japanese or Korean character?"""
    return _HAS_CJK.search(text) is not None


def without_question_words(normalised: str) -> str:
    """The text with question words blanked out, so that positions of the rest stay where they were."""
    return _QUESTION.sub(lambda found: " " * len(found.group()), normalised)


def terms(text: str) -> list[str]:
    """Words of Latin script (lightly stemmed) and pairs of neighbouring CJK characters, in order."""
    found: list[str] = []
    for run in _RUN.findall(normalise(text)):
        if has_cjk(run):
            found.extend(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        else:
            found.extend(_stem(word) for word in run.split("_") if word)
    return found


def query_terms(text: str) -> list[str]:
    """The distinct terms of a question but for question words; all its terms when nothing else is left."""
    rest = list(dict.fromkeys(terms(without_question_words(normalise(text)))))
    return rest or list(dict.fromkeys(terms(text)))


def code_tokens(title: str, body: str) -> frozenset[str]:
    """Exact names worth finding by themselves: ERR_TIMEOUT, PAY-4031, 8005, v7.5.1, tidb_txn_mode."""
    found = {m.group() for text in (title, body) for m in _CODE.finditer(text)}
    found.update(m.group() for m in _NUMBER.finditer(title))
    found.update(m.group(1) for m in _NUMBER_SAYS_SO.finditer(body))
    return frozenset(normalise(token) for token in found if len(token) >= 4)


def is_code(normalised: str) -> bool:
    """Does the keyword look like a code, a version or an identifier rather than a word?"""
    if has_cjk(normalised) or " " in normalised:
        return False
    return any(c.isdigit() for c in normalised) or "_" in normalised


@lru_cache(maxsize=1024)
def _held(text: str) -> frozenset[str]:
    # The best passages of a corpus come back again and again; cutting one into terms takes most of a judgement.
    return frozenset(terms(text))


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # Enough for cover and IDF: "restarts", "restarting" and "restarted" meet. Retrieval does not depend on it.
    if not word.isascii() or not word.isalpha():
        return word
    for ending, least in (("ing", 6), ("ed", 5), ("es", 5), ("s", 4)):
        if word.endswith(ending) and len(word) >= least and not word.endswith("ss"):
            return word[: -len(ending)]
    return word[:-1] if word.endswith("e") and len(word) >= 5 else word


@dataclass(frozen=True, kw_only=True)
class TermStatistics:
    """In how many of ``documents`` sampled documents each term occurs."""

    documents: int = 0
    frequencies: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> TermStatistics:
        """Counts the texts; one text is one document."""
        counts: Counter[str] = Counter()
        documents = 0
        for text in texts:
            documents += 1
            counts.update(set(terms(text)))
        return cls(documents=documents, frequencies=counts)

    def idf(self, term: str) -> float:
        """BM25's inverse document frequency; a term never seen weighs most."""
        seen = self.frequencies.get(term, 0)
        return math.log(1.0 + (self.documents - seen + 0.5) / (seen + 0.5))

    def share(self, text: str) -> float:
        """At most this share of the documents holds the whole text: that of its rarest term. 0…1."""
        found = terms(text)
        if not found or not self.documents:
            return 0.0
        return min(self.frequencies.get(t, 0) for t in found) / self.documents

    def cover(self, wanted: Iterable[str], text: str) -> float:
        """Which share of the wanted terms' IDF the text holds, 0…1."""
        weights = {t: self.idf(t) for t in wanted}
        total = sum(weights.values())
        present = _held(text)
        return sum(w for t, w in weights.items() if t in present) / total if total else 0.0
