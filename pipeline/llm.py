"""The language model as the stages see it: a request, a reply, and the four ways it fails. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pipeline.errors import PipelineError


class Purpose(StrEnum):
    """What a call is for; usage is accounted by it."""

    DESCRIBE = "describe"
    DOMAIN = "domain"


class LlmBusy(PipelineError):
    """The endpoint, or a budget of ours, asks to wait: nobody's document is to blame."""

    status = 503

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.retry_after = retry_after


class LlmDown(PipelineError):
    """The endpoint does not answer, answers with a server error, or refuses our credentials."""

    status = 503


class LlmRejected(PipelineError):
    """The endpoint answered, and will not do this request: a refusal, or an input it cannot take."""


class LlmMalformed(PipelineError):
    """The answer is not what was asked for."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The JSON schema of an answer."""

    name: str
    json: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the model wrote. Tokens as the endpoint counted them, or estimated where it did not."""

    text: str
    tokens_in: int
    tokens_out: int


class Llm(Protocol):
    """One model behind one endpoint."""

    @property
    def model(self) -> str:
        """Its name: part of the summary fingerprint."""
        ...

    def complete(self, messages: Sequence[Mapping[str, str]], schema: Schema, max_tokens: int) -> Reply:
        """One answer within the total timeout. Raises LlmBusy, LlmDown, LlmRejected; an empty answer is a Reply."""
        ...


_LETTER = re.compile(r"[A-Za-z ]+")


def estimate_tokens(text: str) -> int:
    """Tokens of a text on the safe side, for any model: three letters or spaces make one, anything else is one each.

    Code is why digits and punctuation count in full: measured on Gemma 3, two thirds of its characters are tokens.
    """
    others = len(_LETTER.sub("", text))
    return others + (len(text) - others + 2) // 3


def cut_to_tokens(text: str, tokens: int) -> str:
    """The longest beginning of ``text`` within the estimate, ended at a line or sentence where one is near."""
    if estimate_tokens(text) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle - 1)
    return cut_text(text, low)


_STOPS = re.compile(r"[。！？；!?…]+[”’\"'』」）)】]*|[.;](?=\s)|\n")
_CLAUSES = re.compile(r"[，、：,:]|\s")


def cut_text(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``: whole sentences if half of it is kept so, else clauses, else letters.

    Never inside a character: a combining mark stays with its letter.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    from pipeline.sentences import whole_character

    cut = whole_character(text, limit, 0) if limit > 0 else 0
    for pattern in (_STOPS, _CLAUSES):
        ends = [m.end() for m in pattern.finditer(text, 0, cut)]
        if ends and ends[-1] > cut // 2:
            return text[: ends[-1]].rstrip(" ，、：,:；;\n\t")
    return text[:cut].rstrip()


def one_line(text: str) -> str:
    """White space and control characters collapsed to single spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in an answer, whatever stands around it (a code fence, thinking). Raises LlmMalformed."""
    if not text.strip():
        raise LlmMalformed("the answer is empty")
    # After its thinking a model may repeat itself: the last complete object is the answer.
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            found = value
        at = text.find("{", end)
    if found is None:
        raise LlmMalformed("the answer holds no complete JSON object")
    return found
