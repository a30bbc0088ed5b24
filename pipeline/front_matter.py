"""The YAML block at the head of a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import yaml

from pipeline.errors import PipelineError

_OPEN = re.compile(r"---[ \t]*\n")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)
_COMMA = re.compile(r"[,，、]")
_NAMES = {"category": "domain", "tags": "keywords"}
_LINES = ("title", "domain", "summary", "when_to_retrieve", "source")
_LISTS = ("keywords", "covers")


class BadFrontMatter(PipelineError):
    """The front matter is not valid YAML."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """``(fields of an upload, body)``. Fields this product does not know are left out.

    Without a closing fence the first line is a thematic break, and between two fences that hold no
    mapping stands ordinary text: then the whole text is the body. Raises BadFrontMatter with the line.
    """
    opened = _OPEN.match(text)
    closed = _CLOSE.search(text, opened.end()) if opened else None
    if opened is None or closed is None:
        return {}, text
    source = text[opened.end() : closed.start()]
    raw = _load(source, yaml.BaseLoader)
    if not isinstance(raw, Mapping):
        return ({}, text[closed.end() :]) if not source.strip() else ({}, text)
    return _fields(raw, source), text[closed.end() :]


def _load(source: str, loader: type[yaml.BaseLoader | yaml.SafeLoader]) -> Any:
    try:
        return yaml.load(source, loader)  # noqa: S506 - neither loader makes objects
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark else 2
        raise BadFrontMatter(f"line {line}: the front matter is not valid YAML: {error.problem}", line=line) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is nested too deep"
        raise BadFrontMatter(f"line 2: the front matter is not valid YAML: {reason}", line=2) from None


def _fields(raw: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """The base loader keeps every scalar as it is written: a title of 404 or of yes stays text."""
    given = {str(name).lower(): value for name, value in raw.items()}
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if value not in ("", "~", "null"):
            known = _NAMES.get(name, name)
            if known in _LISTS:
                fields.setdefault(known, _list(value))
            elif known in _LINES:
                fields.setdefault(known, _text(value))
    if "revision" in given:
        fields["revision"] = _number(given["revision"])
    if "metadata" in given:
        typed = _load(source, yaml.SafeLoader)
        fields["metadata"] = next(_json(value) for name, value in typed.items() if str(name).lower() == "metadata")
    return fields


def _list(value: object) -> object:
    if isinstance(value, str):
        return [part.strip() for part in _COMMA.split(value)]
    return value


def _text(value: object) -> object:
    # Hugo writes categories as lists; the first one is the document's domain.
    if isinstance(value, list) and value and isinstance(value[0], str):
        return value[0]
    return value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value


def _json(value: object, depth: int = 0) -> object:
    """YAML's dates as ISO strings; depth and number are bounded by validation."""
    if depth > 16:
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item, depth + 1) for item in value]
    return value
