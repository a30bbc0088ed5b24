"""JSON and JSON lines → raw uploads, one at a time."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, BinaryIO, TypeAlias

from pipeline.chat_exports import episode, events, is_conversation, is_message
from pipeline.decoding import decode, encoding_of
from pipeline.errors import InvalidInput, PipelineError
from pipeline.limits import Limits

Record: TypeAlias = "tuple[str, Mapping[str, Any] | PipelineError]"
"""Where it stands, and what it says or what is wrong with it."""

_SAMPLE = 65_536


class BadJson(PipelineError):
    """This is not valid JSON."""


def parse(text: str) -> Any:
    """The value of a JSON text, without NaN and infinities; raises BadJson."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise BadJson("it is nested too deep") from None
    except ValueError as error:
        raise BadJson(str(error)) from None


def json_records(name: str, data: bytes) -> Iterator[Record]:
    """The records of one JSON document: an upload, a conversation, a list of either, or a list of messages."""
    try:
        text = decode(data)
        value = parse(text) if text.strip() else []
    except PipelineError as error:
        yield name, error
        return
    if not isinstance(value, list):
        yield name, _raw(value, name)
    elif value and all(is_message(item) for item in value):
        yield name, {"key": name, "events": events(value)}
    else:
        for number, item in enumerate(value, 1):
            yield f"{name}:{number}", _raw(item, f"{name}/{number}")


def line_records(name: str, stream: BinaryIO, limits: Limits) -> Iterator[Record]:
    """One record a line; a file of bare messages is one conversation. A bad line is bad alone."""
    lines = _values(name, stream, limits)
    first = next(lines, None)
    if first is None:
        return
    if is_message(first[2]):
        yield from _one_conversation(name, chain([first], lines))
        return
    for number, where, value in chain([first], lines):
        yield where, value if isinstance(value, PipelineError) else _raw(value, f"{name}/{number}")


def _one_conversation(name: str, lines: Iterator[tuple[int, str, Any]]) -> Iterator[Record]:
    messages: list[object] = []
    for _, where, value in lines:
        if isinstance(value, PipelineError):
            yield where, value
        else:
            messages.append(value)
    yield name, {"key": name, "events": events(messages)}


def _raw(value: object, key: str) -> Mapping[str, Any] | PipelineError:
    if isinstance(value, Mapping):
        return episode(value, key) if is_conversation(value) else value
    return BadJson("it must be a JSON object")


def _values(name: str, stream: BinaryIO, limits: Limits) -> Iterator[tuple[int, str, Any]]:
    """``(line number, place, value or error)`` of every line that is not blank."""
    for number, line in enumerate(_lines(stream, limits.max_batch_bytes), 1):
        where = f"{name}:{number}"
        if isinstance(line, InvalidInput):
            yield number, where, line
        elif line.strip():
            yield number, where, _value(line)


def _value(line: bytes) -> Any:
    try:
        return parse(decode(line))
    except PipelineError as error:
        return error


def _lines(stream: BinaryIO, limit: int) -> Iterator[bytes | InvalidInput]:
    """UTF-8 or GB18030 lines; UTF-16 and UTF-32, where a newline is no single byte, are converted on the way."""
    source = io.BufferedReader(stream, _SAMPLE) if not hasattr(stream, "peek") else stream  # type: ignore[type-var]
    sample = source.peek(_SAMPLE)[:_SAMPLE]
    encoding = encoding_of(sample)
    if encoding != "utf-8-sig":
        yield from _wide_lines(source, encoding, limit)
        return
    if sample.startswith(codecs.BOM_UTF8):
        source.read(len(codecs.BOM_UTF8))
    while line := source.readline(limit + 1):
        if len(line) > limit:
            while line and not line.endswith(b"\n"):
                line = source.readline(limit)
            yield _too_long(limit)
        else:
            yield line


def _wide_lines(source: BinaryIO, encoding: str, limit: int) -> Iterator[bytes | InvalidInput]:
    reader = io.TextIOWrapper(source, encoding=encoding, errors="replace", newline="\n")
    while line := reader.readline(limit):
        if len(line) < limit or line.endswith("\n"):
            yield line.encode()
            continue
        while line and not line.endswith("\n"):
            line = reader.readline(limit)
        yield _too_long(limit)


def _too_long(limit: int) -> InvalidInput:
    return InvalidInput(f"line has more than {limit:,} bytes", field="line", limit=limit)


def _no_constant(name: str) -> None:
    raise BadJson(f"{name} is not a JSON value")
