"""Files → uploads. Whatever is in a file, it ends as an upload or as a refusal with its reason."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from pipeline.decoding import Binary, Undecodable, decode
from pipeline.documents import Upload
from pipeline.errors import InvalidInput, PipelineError
from pipeline.front_matter import BadFrontMatter, split_front_matter
from pipeline.html_text import declared_charset, html_text
from pipeline.json_records import BadJson, json_records, line_records
from pipeline.limits import Limits
from pipeline.markdown_blocks import first_heading
from pipeline.validation import validate
from pipeline.walking import READABLE, FoundFile


class Reason(StrEnum):
    """Why a file or a line of it was not taken."""

    UNREADABLE = "unreadable"
    UNSUPPORTED = "unsupported"
    DUPLICATE = "duplicate"
    TOO_LARGE = "too_large"
    BINARY = "binary"
    UNDECODABLE = "undecodable"
    EMPTY = "empty"
    BAD_FRONT_MATTER = "bad_front_matter"
    BAD_JSON = "bad_json"
    INVALID = "invalid"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """``name`` is the file's name, with ``:line`` for a line of JSONL; ``sentence`` says what to do about it."""

    name: str
    reason: Reason
    sentence: str


_REASONS: dict[type[PipelineError], Reason] = {
    Binary: Reason.BINARY,
    Undecodable: Reason.UNDECODABLE,
    BadFrontMatter: Reason.BAD_FRONT_MATTER,
    BadJson: Reason.BAD_JSON,
}
_LINES = frozenset({".jsonl", ".ndjson"})


def read_file(found: FoundFile, limits: Limits, *, domain: str | None = None) -> Iterator[Upload | Refused]:
    """The uploads in a file, streamed; ``domain`` stands in for that of the directory.

    JSON lines come one at a time, so that a file of any size needs the memory of its longest line.
    """
    name = found.name
    if found.clash is not None:
        yield Refused(
            name=name, reason=Reason.DUPLICATE, sentence=f"{found.clash} has the same key; rename one of them"
        )
        return
    try:
        with found.path.open("rb") as stream:
            yield from read_stream(name, stream, limits, domain=domain or found.domain)
    except OSError as error:
        why = error.strerror or str(error)
        yield Refused(name=name, reason=Reason.UNREADABLE, sentence=f"the file cannot be read: {why}")


def read_bytes(name: str, data: bytes, limits: Limits, *, domain: str = "default") -> Iterator[Upload | Refused]:
    """The same for bytes that came under a name."""
    return read_stream(name, io.BytesIO(data), limits, domain=domain)


def read_stream(name: str, stream: BinaryIO, limits: Limits, *, domain: str = "default") -> Iterator[Upload | Refused]:
    """The same for an open binary stream. ``domain`` is used where the file does not say one."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in READABLE:
        known = ", ".join(sorted(READABLE))
        yield Refused(name=name, reason=Reason.UNSUPPORTED, sentence=f"files of this kind are not read; {known} are")
        return
    if suffix in _LINES:
        yield from _records(name, line_records(name, stream, limits), limits, domain)
        return
    # UTF-16 takes up to twice the bytes of the text it holds; the text itself is measured by validation.
    limit = limits.max_batch_bytes if suffix == ".json" else 2 * limits.max_body_bytes
    data = stream.read(limit + 1)
    if len(data) > limit:
        yield Refused(name=name, reason=Reason.TOO_LARGE, sentence=f"the file has more than {limit:,} bytes")
        return
    if suffix == ".json":
        yield from _records(name, json_records(name, data), limits, domain)
    else:
        yield _outcome(name, partial(_document, name, suffix, data), limits, domain)


def _records(
    name: str, records: Iterator[tuple[str, Mapping[str, Any] | PipelineError]], limits: Limits, domain: str
) -> Iterator[Upload | Refused]:
    count = 0
    for where, record in records:
        count += 1
        yield _outcome(where, partial(_raised, record), limits, domain)
    if not count:
        yield _empty(name)


def _raised(record: Mapping[str, Any] | PipelineError) -> Mapping[str, Any]:
    if isinstance(record, PipelineError):
        raise record
    return record


def _outcome(name: str, raw: Callable[[], Mapping[str, Any]], limits: Limits, domain: str) -> Upload | Refused:
    """Every way a document can fail, as a refusal."""
    try:
        fields = raw()
        body = fields.get("body")
        if isinstance(body, str) and not body.strip("\0 \t\r\n\v\f\ufeff\u3000"):
            return _empty(name)
        return validate(fields if fields.get("domain") else {**fields, "domain": domain}, limits)
    except InvalidInput as error:
        large = error.fields.get("field") in {"body", "events", "line"} and "limit" in error.fields
        return Refused(name=name, reason=Reason.TOO_LARGE if large else Reason.INVALID, sentence=str(error))
    except RecursionError:
        return Refused(name=name, reason=Reason.INVALID, sentence="the file is nested too deep")
    except PipelineError as error:
        return Refused(name=name, reason=_REASONS.get(type(error), Reason.INVALID), sentence=str(error))


def _empty(name: str) -> Refused:
    return Refused(name=name, reason=Reason.EMPTY, sentence="there is no text in it")


def _document(name: str, suffix: str, data: bytes) -> dict[str, Any]:
    """The raw upload of a file that is one document."""
    stem = PurePosixPath(name).stem
    if suffix in {".html", ".htm"}:
        title, body = html_text(decode(data, declared_charset(data)))
        return {"key": name, "title": title or stem, "body": body}
    text = decode(data)
    if suffix == ".txt":
        return {"key": name, "title": stem, "body": text}
    fields, body = split_front_matter(text)
    title = fields.get("title") or first_heading(body, level=1) or stem
    return {**fields, "key": name, "title": title, "body": body}
