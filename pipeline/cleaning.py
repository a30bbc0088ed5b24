"""Makes text storable: what PostgreSQL, JSON or a tokenizer cannot hold is replaced, nothing is cut."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """NUL removed, line ends made LF, surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "")
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_line(text: str) -> str:
    """The same on one line: every run of white space becomes one space."""
    return " ".join(clean_text(text).split())
