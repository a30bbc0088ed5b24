"""Checks of single values. Each names the field in its error, and says the limit it broke."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from pipeline.cleaning import clean_line, clean_text
from pipeline.errors import InvalidInput
from pipeline.limits import Limits

MAX_REVISION = 2**63 - 1

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?")
# Characters no key, domain or id can carry: control, format-breaking separators, lone surrogates.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Asked(Protocol):
    """A request that holds a question."""

    @property
    def query(self) -> str: ...


def wrong(field: str, detail: str, limit: object | None = None) -> InvalidInput:
    """The error to raise: one sentence that begins with the field's name."""
    return InvalidInput(f"{field} {detail}", field=field, limit=limit)


def known_fields(raw: Mapping[str, Any], known: frozenset[str], prefix: str = "") -> None:
    """Raises InvalidInput for the first field that is not known."""
    for name in raw:
        if name not in known:
            shown = clean_line(str(name))[:80]
            allowed = ", ".join(sorted(known))
            raise wrong(f"{prefix}{shown}", f"is not a known field; known are {allowed}")


def string(raw: Mapping[str, Any], name: str, limit: int, prefix: str = "") -> str:
    """A cleaned string of at most ``limit`` code points; empty when absent or null."""
    value = raw.get(name)
    return "" if value is None else checked_text(value, f"{prefix}{name}", limit).strip()


def line(raw: Mapping[str, Any], name: str, limit: int, prefix: str = "") -> str:
    """The same on one line."""
    text = string(raw, name, limit, prefix)
    return " ".join(text.split()) if text else text


def checked_text(value: object, field: str, limit: int) -> str:
    if not isinstance(value, str):
        raise wrong(field, f"must be a string, not {_kind(value)}")
    text = clean_text(value)
    if len(text) > limit:
        raise wrong(field, f"has {len(text):,} characters; at most {limit:,} are allowed", limit)
    return text


def checked_question(request: Asked, fields: Sequence[str], limit: int, *, may_be_empty: bool = False) -> None:
    """Refuses a question that no search can take as it is; ``fields`` are the attributes that hold its texts.

    Raises InvalidInput for the first text of more than ``limit`` code points or with a NUL or a lone surrogate in it,
    and for a ``query`` of white space alone unless it ``may_be_empty``.
    """
    for name in fields:
        text = getattr(request, name) or ""
        if len(text) > limit:
            raise wrong(name, f"has {len(text):,} characters; at most {limit:,} are allowed", limit)
        # Not cleaned as stored text is: a question is answered as it was asked, or not at all.
        if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
            raise wrong(name, "holds a character that is none")
    if not may_be_empty and not request.query.strip():
        raise InvalidInput("the query is empty", field="query")


def strings(raw: Mapping[str, Any], name: str, count: int, limit: int) -> tuple[str, ...]:
    """A list of short strings, blanks and repetitions left out, in the order given."""
    value = raw.get(name)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise wrong(name, f"must be a list of strings, not {_kind(value)}")
    if len(value) > count:
        raise wrong(name, f"has {len(value):,} entries; at most {count:,} are allowed", count)
    cleaned = (clean_line(checked_text(item, f"{name}[{index}]", limit)) for index, item in enumerate(value))
    return tuple(dict.fromkeys(item for item in cleaned if item))


def document_key(value: object, limits: Limits) -> str:
    """A path-like key in NFC that survives a URL, a file system and a log line."""
    if not isinstance(value, str) or not value:
        raise wrong("key", "must be a string that is not empty")
    key = unicodedata.normalize("NFC", value)
    printable(key, "key")
    size = len(key.encode())
    if size > limits.max_key_bytes:
        raise wrong("key", f"has {size:,} bytes; at most {limits.max_key_bytes:,} are allowed", limits.max_key_bytes)
    if key != key.strip():
        raise wrong("key", "must not begin or end with white space")
    if key.startswith("/") or key.endswith("/"):
        raise wrong("key", "must not begin or end with a slash")
    if any(part in {"", ".", ".."} for part in key.split("/")):
        raise wrong("key", "must not have empty parts or the parts '.' and '..'")
    return key


def printable(text: str, field: str) -> str:
    """Raises InvalidInput for control characters and lone surrogates."""
    for char in text:
        if unicodedata.category(char) in _UNPRINTABLE:
            raise wrong(field, f"contains the character U+{ord(char):04X}, which is not allowed there")
    return text


def revision(value: object) -> int | None:
    """A monotone number from the source, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_REVISION:
        raise wrong("revision", f"must be a whole number from 0 to {MAX_REVISION}", MAX_REVISION)
    return value


def instant(value: object, field: str) -> datetime:
    """A moment with its zone: an RFC 3339 string, or an aware datetime."""
    moment = value if isinstance(value, datetime) else _parse_instant(value, field)
    if moment.tzinfo is None:
        raise wrong(field, "has no time zone; write it like 2026-03-01T08:30:00+08:00")
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise wrong(field, "lies outside the years 1 to 9999") from None
    return moment


def _parse_instant(value: object, field: str) -> datetime:
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong(field, "must be an RFC 3339 time like 2026-03-01T08:30:00+08:00")
    day, time, fraction, zone = match.groups()
    zone = {"z": "+00:00", None: ""}.get(zone.lower() if zone else None, zone)
    try:
        return datetime.fromisoformat(f"{day}T{time}.{(fraction or '0')[:6]:0<6}{zone}")
    except ValueError as error:
        raise wrong(field, f"is no valid time: {error}") from None


def metadata(value: object, limits: Limits) -> dict[str, Any]:
    """A JSON object, cleaned, with bounded size, depth and number of keys."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong("metadata", f"must be an object, not {_kind(value)}")
    cleaned: dict[str, Any] = _Metadata(limits).value(value, "metadata", 1)
    size = len(json.dumps(cleaned, ensure_ascii=False).encode())
    if size > limits.max_metadata_bytes:
        limit = limits.max_metadata_bytes
        raise wrong("metadata", f"has {size:,} bytes as JSON; at most {limit:,} are allowed", limit)
    return cleaned


class _Metadata:
    """One walk over metadata; stops at the first limit, so that a small alias bomb costs nothing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.max_metadata_bytes
        self._keys = 0

    def value(self, value: object, field: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise wrong("metadata", "has too many values", self._limits.max_metadata_bytes)
        if isinstance(value, (Mapping, list, tuple)) and depth > self._limits.max_metadata_depth:
            limit = self._limits.max_metadata_depth
            raise wrong(field, f"is nested too deep; at most {limit} levels are allowed", limit)
        if isinstance(value, Mapping):
            return {self._key(key, field): self.value(v, f"{field}.{key}"[:200], depth + 1) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]
        return self._leaf(value, field)

    def _leaf(self, value: object, field: str) -> object:
        if isinstance(value, str):
            return checked_text(value, field, self._limits.max_metadata_bytes)
        if isinstance(value, float) and not math.isfinite(value):
            raise wrong(field, "must be a finite number")
        if value is None or isinstance(value, (bool, int, float)):
            return value
        raise wrong(field, f"must be a JSON value, not {_kind(value)}")

    def _key(self, key: object, field: str) -> str:
        self._keys += 1
        if self._keys > self._limits.max_metadata_keys:
            limit = self._limits.max_metadata_keys
            raise wrong("metadata", f"has too many keys; at most {limit} are allowed", limit)
        name = checked_text(key, f"{field} key", self._limits.max_metadata_key_chars)
        return printable(name, f"{field} key")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)
