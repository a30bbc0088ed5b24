"""CloudEvents 1.0 over HTTP: one event out of a request, in structured or in binary mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from api.parsing import json_object
from pipeline.errors import InvalidInput

REINDEX = "wellhead.reindex.requested"
ACCEPTED = f"accepted are CloudEvents 1.0 of the type {REINDEX}"
_REQUIRED = ("specversion", "id", "source", "type")
_STRUCTURED, _BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"


@dataclass(frozen=True, kw_only=True)
class CloudEvent:
    """The attributes that every event has."""

    id: str
    source: str
    type: str


def event_of(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """The event of a request. Raises InvalidInput naming the attribute, or the header in binary mode."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _BATCH:
        raise InvalidInput("batches are not read: send one event a request", field="Content-Type")
    if kind != _STRUCTURED and any(name.startswith("ce-") for name in headers):
        return _checked({name: headers.get(f"ce-{name}") for name in _REQUIRED}, "ce-", decode=True)
    raw = json_object(body)
    _refuse_bucket_notification(raw)
    return _checked(raw, "")


def _checked(raw: Mapping[str, Any], prefix: str, *, decode: bool = False) -> CloudEvent:
    found: dict[str, str] = {}
    for name in _REQUIRED:
        value = raw.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > 1024:
            detail = f"{prefix}{name} must be a text of 1 to 1,024 characters; {ACCEPTED}"
            raise InvalidInput(detail, field=f"{prefix}{name}")
        found[name] = unquote(value) if decode else value
    if found.pop("specversion") != "1.0":
        raise InvalidInput("only specversion 1.0 is read", field=f"{prefix}specversion")
    if found["type"] != REINDEX:
        raise InvalidInput(f"the type {found['type'][:100]!r} is not known; {ACCEPTED}", field=f"{prefix}type")
    return CloudEvent(**found)


def _refuse_bucket_notification(raw: Mapping[str, Any]) -> None:
    """S3 and MinIO name objects in a bucket; this server reads no buckets."""
    for field in ("Records", "EventName"):
        if field in raw:
            raise InvalidInput(
                "bucket notifications are not acted upon: this server reads no buckets. Let whoever hears of the "
                f"object send its text with PUT /v1/documents/{{key}}; {ACCEPTED}",
                field=field,
            )
