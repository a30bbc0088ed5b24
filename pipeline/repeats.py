"""Does a question mean the same as an earlier one? Pure; Chinese and English.

The cosine of two questions alone cannot say: "scale out the cluster" and "scale in the cluster" are nearer than most
rephrasings (AUC 0.37–0.44 on the hand-written pairs, below chance). What tells them apart is how the wording differs:
look-alikes keep the frame and swap one term, name other identifiers, ask for another thing (who, where, how long) or
negate; rephrasings change the frame. A small logistic over such features decides.

Measured by ``python -m ops.bench.repeats`` (multilingual-e5-small int8; 76 rephrasings, 76 look-alikes of one domain,
435 random pairs of one domain; half Chinese; five-fold cross-validation, five seeds). Stopped at a threshold of 0.65:
0.605 of the rephrasings, 0.026 of the look-alikes, 0.041 of the random pairs. The rule is strict because it stops a
question before anything is searched. Most other rephrasings find a document that the first question was handed and
are stopped by that: 0.919 of the rephrasings by either (62 pairs, corpora without tidb-zh). Look-alikes whose best
document was handed out before (0.59: one manual answers both) are DEDUPED too, as ``doc_retrieved``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipeline.action_memory import Question
from pipeline.ports import Floats
from pipeline.terms import normalise

FEATURES = (
    "closeness", "jaccard", "contained", "ratio", "frame", "one_swap", "numbers", "subset", "own_terms",
    "focus", "focus_one_side", "negation", "identifiers", "identifier_one_side", "same_end", "same_start", "same_count",
)  # fmt: skip

_WORD = re.compile(r"[a-z0-9][a-z0-9_./-]*|[\u4e00-\u9fff]+")
_UNIT = re.compile(r"[a-z0-9_.-]+|[\u4e00-\u9fff]")
_CJK = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CODE = re.compile(r"[A-Z].*[A-Z0-9]|\d")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
_ASKING_ZH = re.compile(
    "怎么办|怎么回事|怎么|怎样|如何|为什么|什么|哪些|是不是|能不能|有没有|的|了|是|吗|呢|会|把|和|与|吧|在|给|要"
    "|应该|需要|可以|请|一下"
)
_ASKING_EN = frozenset(
    [
        "the",
        "a",
        "an",
        "of",
        "to",
        "is",
        "are",
        "was",
        "in",
        "on",
        "for",
        "and",
        "or",
        "how",
        "what",
        "when",
        "which",
        "who",
        "whom",
        "why",
        "do",
        "does",
        "did",
        "i",
        "my",
        "we",
        "it",
        "its",
        "be",
        "can",
        "with",
        "at",
        "by",
        "from",
        "that",
        "this",
        "there",
        "into",
        "one",
        "after",
        "has",
        "have",
        "not",
        "no",
    ]
)
_FOCUS = {
    "who": re.compile(r"谁|\bwhom?\b"),
    "where": re.compile(r"哪里|哪儿|在哪|\bwhere\b"),
    "time": re.compile(r"多久|多长|什么时候|何时|几点|时限|期限|\bhow long\b|\bwhen\b|\bdeadline\b|\btime\b"),
    "amount": re.compile(r"多少|几个|\bhow many\b|\bhow much\b|\blimit\b"),
    "cause": re.compile(r"为什么|为何|原因|\bwhy\b|\bcause"),
    "meaning": re.compile(
        r"什么是|是什么|含义|意思|定义|概念|理解|解释|代表什么|\bmeaning\b|\bwhat does\b|\bwhat is\b|\bdefinition\b"
    ),
    "proof": re.compile(r"验证|确认|\bverify\b|\bcheck\b"),
}
_NEGATION = re.compile(r"不能|不要|不可|不得|禁止|勿|无|\b(?:not|never|cannot|can't|without)\b")


@dataclass(frozen=True, kw_only=True)
class RepeatRule:
    """How near is a repeat. ``unrelated``: the median cosine of two unrelated questions in the space.

    The generation's calibration knows it for its own space; the default is that of the bundled encoder.
    ``threshold``: the least probability of a repeat that stops a question.
    """

    unrelated: float = 0.80
    threshold: float = 0.65


DEFAULT_RULE = RepeatRule()

# Each question is compared with all that come after it in its session.
_of_recent_questions = lru_cache(maxsize=4096)


def is_repeat(query: str, vector: Floats | None, earlier: Iterable[Question], rule: RepeatRule = DEFAULT_RULE) -> bool:
    """Does ``query`` mean the same as one of the ``earlier`` questions?

    ``vector``: float32 [dimension], unit length, in the space of the earlier ones. Without vectors only a question of
    the same words is a repeat.
    """
    return find_repeat(query, vector, earlier, rule) is not None


def find_repeat(
    query: str, vector: Floats | None, earlier: Iterable[Question], rule: RepeatRule = DEFAULT_RULE
) -> Question | None:
    """The first of ``earlier`` that ``query`` repeats."""
    same = normalise(query)
    for question in earlier:
        if normalise(question.query) == same:
            return question
        if vector is None or question.vector is None or vector.shape != question.vector.shape:
            continue
        closeness = closeness_of(float(np.dot(vector, question.vector)), rule.unrelated)
        if probability(features(query, question.query, closeness)) >= rule.threshold:
            return question
    return None


def features(one: str, other: str, closeness: float) -> tuple[float, ...]:
    """The values of ``FEATURES`` for two questions; ``closeness``: 0 for unrelated questions, 1 for equal ones."""
    a, b = normalise(one), normalise(other)
    return (closeness, *_overlap(a, b), *_asked(a, b), *_named(one, other, a, b), *_ends(a, b))


def closeness_of(cosine: float, unrelated: float) -> float:
    """0 for two unrelated questions of the space, 1 for equal ones: comparable between spaces."""
    return (cosine - unrelated) / (1.0 - unrelated)


def probability(values: tuple[float, ...]) -> float:
    """0…1: how probably features are those of a repeat."""
    z = BIAS + sum(weight * value for weight, value in zip(WEIGHTS, values, strict=True))
    return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, z))))


def _overlap(a: str, b: str) -> tuple[float, ...]:
    ta, tb = _terms(a), _terms(b)
    shared = len(ta & tb)
    units_a, units_b = _UNIT.findall(a), _UNIT.findall(b)
    matcher = difflib.SequenceMatcher(None, units_a, units_b, autojunk=False)
    changes = [op for op in matcher.get_opcodes() if op[0] != "equal"]
    frame = _common(units_a, units_b) + _common(units_a[::-1], units_b[::-1])
    numbers_a, numbers_b = ({u for u in units if re.search(r"\d", u)} for units in (units_a, units_b))
    return (
        shared / max(1, len(ta | tb)),
        shared / max(1, min(len(ta), len(tb))),
        matcher.ratio(),
        min(1.0, frame / max(1, min(len(units_a), len(units_b)))),
        float(len(changes) == 1 and changes[0][0] == "replace"),
        float(bool(numbers_a - numbers_b) and bool(numbers_b - numbers_a)),
        float(ta <= tb or tb <= ta),
        float(min(len(ta - tb), len(tb - ta))),
    )


def _asked(a: str, b: str) -> tuple[float, ...]:
    fa, fb = _focus(a), _focus(b)
    return (
        float(bool(fa and fb) and not fa & fb),
        float(bool(fa) != bool(fb)),
        float((_NEGATION.search(a) is None) != (_NEGATION.search(b) is None)),
    )


def _named(one: str, other: str, a: str, b: str) -> tuple[float, ...]:
    names_a, names_b = _names(one) - _inside(b, _names(one)), _names(other) - _inside(a, _names(other))
    codes_a, codes_b = (
        {n for n in _codes(text) if n.replace("-", "") not in re.sub(r"[ -]", "", against)}
        for text, against in ((one, b), (other, a))
    )
    return float(bool(names_a and names_b)), float(bool(codes_a) != bool(codes_b))


def _ends(a: str, b: str) -> tuple[float, ...]:
    units_a, units_b = _UNIT.findall(a) or [""], _UNIT.findall(b) or [""]
    ta, tb = _terms(a), _terms(b)
    return (
        float(units_a[-1] == units_b[-1]),
        float(units_a[0] == units_b[0]),
        float(len(ta - tb) == len(tb - ta)),
    )


@_of_recent_questions
def _terms(text: str) -> frozenset[str]:
    """Content words of Latin script, without endings; pairs of Chinese characters that ask for nothing."""
    found: set[str] = set()
    for word in _WORD.findall(text):
        if _CJK.match(word):
            for run in _ASKING_ZH.split(word):
                found |= {run} if len(run) == 1 else {run[i : i + 2] for i in range(len(run) - 1)}
        elif (plain := word.strip(".-/")) not in _ASKING_EN:
            inflected = len(plain) > 4 and not any(c.isdigit() for c in plain)
            found.add(_ENDING.sub("", plain) if inflected else plain)
    return frozenset(found)


def _common(first: list[str], second: list[str]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


@_of_recent_questions
def _focus(text: str) -> frozenset[str]:
    return frozenset(name for name, pattern in _FOCUS.items() if pattern.search(text))


@_of_recent_questions
def _codes(text: str) -> frozenset[str]:
    return frozenset(normalise(word) for word in _LATIN.findall(text) if _CODE.search(word))


@_of_recent_questions
def _names(text: str) -> frozenset[str]:
    """Identifiers: every Latin word inside Chinese, else only those that look like a code or an acronym."""
    if _CJK.search(text):
        return frozenset(normalise(word) for word in _LATIN.findall(text) if not word[0].isdigit())
    return _codes(text)


def _inside(text: str, names: frozenset[str]) -> set[str]:
    return {name for name in names if name in text}


# Fitted by ``python -m ops.bench.repeats`` on all pairs; the figures in the docstring are cross-validated.
BIAS = -2.114
WEIGHTS = (
    6.581, 0.847, 2.257, -4.78, -6.248, -1.292, -0.619, 0.134, 0.112,
    -0.517, -0.314, -1.259, -3.115, 1.182, 0.436, 0.076, 0.02,
)  # fmt: skip
