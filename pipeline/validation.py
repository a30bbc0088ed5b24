"""Raw JSON → ``Upload``: one gate for the API, the command line and files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from pipeline import field_checks as check
from pipeline.cleaning import clean_line, clean_text
from pipeline.documents import Block, Event, Upload
from pipeline.errors import InvalidInput
from pipeline.field_checks import wrong
from pipeline.fingerprint import digest
from pipeline.limits import Limits
from pipeline.markdown_blocks import first_heading

__all__ = ["Limits", "default_title", "meta_hash", "text_hash", "validate"]

_TEXTS = frozenset({"title", "domain", "keywords", "summary", "covers", "when_to_retrieve", "source"})
_UPLOAD = _TEXTS | {"key", "revision", "body", "events", "metadata"}
_EVENT = frozenset({"at", "source", "user_id", "agent_id", "blocks"})
_BLOCK = frozenset({"type", "text", "mime", "ref"})


def validate(raw: Mapping[str, Any], limits: Limits) -> Upload:
    """The upload that ``raw`` describes, cleaned; raises InvalidInput naming the field and the limit."""
    if not isinstance(raw, Mapping):
        raise InvalidInput("an upload must be a JSON object", field="")
    check.known_fields(raw, _UPLOAD)
    key = check.document_key(raw.get("key"), limits)
    body, events = _content(raw, limits)
    domain = check.line(raw, "domain", limits.max_domain_chars) or "default"
    return Upload(
        key=key,
        body=body,
        events=events,
        title=check.line(raw, "title", limits.max_title_chars) or default_title(key, body, limits),
        domain=check.printable(domain, "domain"),
        keywords=check.strings(raw, "keywords", limits.max_keywords, limits.max_keyword_chars),
        summary=check.string(raw, "summary", limits.max_summary_chars),
        covers=check.strings(raw, "covers", limits.max_covers, limits.max_cover_chars),
        when_to_retrieve=check.string(raw, "when_to_retrieve", limits.max_when_to_retrieve_chars),
        source=check.line(raw, "source", limits.max_source_chars),
        revision=check.revision(raw.get("revision")),
        metadata=check.metadata(raw.get("metadata"), limits),
    )


def default_title(key: str, body: str | None, limits: Limits) -> str:
    """The first heading of an article, else the last part of the key."""
    heading = clean_line(first_heading(body)) if body else ""
    return heading[: limits.max_title_chars] or key.rsplit("/", 1)[-1]


def text_hash(upload: Upload) -> str:
    """Over everything that makes a new version: title, body or events, references to media included."""
    if upload.events is None:
        return digest("article", upload.title, upload.body)
    return digest("episode", upload.title, [_event_content(event) for event in upload.events])


def meta_hash(upload: Upload) -> str:
    """Over everything that is updated without embedding anything. ``revision`` orders uploads; it is no content."""
    return digest(
        upload.domain,
        upload.keywords,
        upload.summary,
        upload.covers,
        upload.when_to_retrieve,
        upload.source,
        upload.metadata,
    )


def _event_content(event: Event) -> list[object]:
    blocks = [[block.type, block.text, block.mime, block.ref] for block in event.blocks]
    return [event.at.astimezone(UTC).isoformat(), event.source, event.user_id, event.agent_id, blocks]


def _content(raw: Mapping[str, Any], limits: Limits) -> tuple[str | None, tuple[Event, ...] | None]:
    body, events = raw.get("body"), raw.get("events")
    if (body is None) == (events is None):
        raise wrong("body", "or events: exactly one of the two must be given")
    return (_body(body, limits), None) if events is None else (None, _events(events, limits))


def _body(value: object, limits: Limits) -> str:
    if not isinstance(value, str):
        raise wrong("body", "must be a string")
    text = clean_text(value)
    _bounded(len(text.encode()), "body", limits)
    if not text.strip():
        raise wrong("body", "is empty")
    return text


def _bounded(size: int, field: str, limits: Limits) -> None:
    limit = limits.max_body_bytes
    if size > limit:
        raise wrong(field, f"has {size:,} bytes of text; at most {limit:,} are allowed", limit)


def _events(value: object, limits: Limits) -> tuple[Event, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise wrong("events", "must be a list of at least one event")
    if len(value) > limits.max_events:
        limit = limits.max_events
        raise wrong("events", f"has {len(value):,} entries; at most {limit:,} are allowed", limit)
    events, size = [], 0
    for index, item in enumerate(value):
        event = _event(item, f"events[{index}]", limits)
        size += len(event.text.encode())
        _bounded(size, "events", limits)
        events.append(event)
    return tuple(events)


def _event(raw: object, field: str, limits: Limits) -> Event:
    if not isinstance(raw, Mapping):
        raise wrong(field, "must be an object")
    prefix = f"{field}."
    check.known_fields(raw, _EVENT, prefix)
    blocks = raw.get("blocks")
    if not isinstance(blocks, (list, tuple)) or not blocks:
        raise wrong(f"{prefix}blocks", "must be a list of at least one block")
    if len(blocks) > limits.max_blocks:
        limit = limits.max_blocks
        raise wrong(f"{prefix}blocks", f"has {len(blocks):,} entries; at most {limit} are allowed", limit)
    return Event(
        at=check.instant(raw.get("at"), f"{prefix}at"),
        source=check.line(raw, "source", limits.max_id_chars, prefix),
        user_id=check.line(raw, "user_id", limits.max_id_chars, prefix) or None,
        agent_id=check.line(raw, "agent_id", limits.max_id_chars, prefix) or None,
        blocks=tuple(_block(block, f"{prefix}blocks[{index}]", limits) for index, block in enumerate(blocks)),
    )


def _block(raw: object, field: str, limits: Limits) -> Block:
    if not isinstance(raw, Mapping):
        raise wrong(field, "must be an object")
    prefix = f"{field}."
    check.known_fields(raw, _BLOCK, prefix)
    kind = check.line(raw, "type", 32, prefix)
    if not kind:
        raise wrong(f"{prefix}type", "must be given: 'text', or the kind of medium")
    if kind == "text":
        text = check.checked_text(raw.get("text"), f"{prefix}text", limits.max_body_bytes)
        if not text.strip():
            raise wrong(f"{prefix}text", "is empty")
        _no_others(raw, ("mime", "ref"), prefix, "belongs to media, not to text")
        return Block(type=kind, text=text)
    mime = check.line(raw, "mime", 127, prefix)
    if "/" not in mime.strip("/"):
        raise wrong(f"{prefix}mime", "must be a MIME type like image/png")
    ref = check.line(raw, "ref", limits.max_ref_chars, prefix)
    if not ref:
        raise wrong(f"{prefix}ref", "must say where the medium is")
    _no_others(raw, ("text",), prefix, "belongs to text blocks; media are never described")
    return Block(type=kind, mime=mime, ref=ref)


def _no_others(raw: Mapping[str, Any], names: tuple[str, ...], prefix: str, why: str) -> None:
    for name in names:
        if raw.get(name) is not None:
            raise wrong(f"{prefix}{name}", why)
