"""Chat exports → raw episodes: OpenAI-style messages, one event a message, the role as its source."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_TIMES = ("created_at", "timestamp", "at", "create_time", "time")
_KEYS = ("key", "id", "conversation_id", "session_id")
_KEPT = ("title", "domain", "keywords", "summary", "covers", "when_to_retrieve", "source", "revision", "metadata")
# What has no time is put at the epoch: no clock of ours may change the text of the same file read twice.
_UNKNOWN = datetime.fromtimestamp(0, UTC).isoformat()
_MILLISECONDS = 100_000_000_000


def is_message(value: object) -> bool:
    """An object with a role and something said."""
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and "body" not in value


def is_conversation(value: object) -> bool:
    """An object that holds a list of messages."""
    return isinstance(value, Mapping) and isinstance(value.get("messages"), list)


def episode(conversation: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The raw upload of a conversation; ``key`` is used where it names none itself."""
    named = next((str(conversation[name]) for name in _KEYS if conversation.get(name) not in (None, "")), key)
    raw = {name: conversation[name] for name in _KEPT if conversation.get(name) is not None}
    return {**raw, "key": named, "events": events(conversation["messages"], _time(conversation) or _UNKNOWN)}


def events(messages: Sequence[object], start: str = _UNKNOWN) -> list[dict[str, Any]]:
    """Raw events in the order of the messages; one without a time has that of the message before it.

    Messages that say nothing are left out; what is not an object is passed on, for validation to name it.
    """
    result: list[dict[str, Any]] = []
    at = start
    for message in messages:
        if not isinstance(message, Mapping):
            result.append({"at": at, "source": "", "blocks": message})
            continue
        at = _time(message) or at
        blocks = _blocks(message)
        if blocks:
            event = {"at": at, "source": str(message.get("name") or message.get("role") or ""), "blocks": blocks}
            people = {name: message[name] for name in ("user_id", "agent_id") if message.get(name)}
            result.append({**event, **people})
    return result


def _time(source: Mapping[str, Any]) -> str | None:
    """RFC 3339 of the first time given; seconds or milliseconds since 1970 are converted."""
    value = next((source[name] for name in _TIMES if source.get(name) not in (None, "")), None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value / 1000 if abs(value) >= _MILLISECONDS else value
        try:
            return datetime.fromtimestamp(seconds, UTC).isoformat()
        except (OverflowError, ValueError, OSError):
            return str(value)
    return None if value is None else str(value)


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    blocks = [block for part in parts for block in _part(part)]
    return blocks + [block for call in message.get("tool_calls") or () for block in _call(call)]


def _part(part: object) -> list[dict[str, Any]]:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, Mapping):
        return []
    if part.get("type") == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        return [_image(url)] if isinstance(url, str) and url else []
    return _text(part.get("text"))


def _text(text: object) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if isinstance(text, str) and text.replace("\0", "").strip() else []


def _call(call: object) -> list[dict[str, Any]]:
    """A tool call, as it was made."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not function.get("name"):
        return []
    return _text(f"{function['name']}({function.get('arguments') or ''})")


def _image(url: str) -> dict[str, Any]:
    if url.startswith("data:"):
        # The bytes stay in the export; the digest says which picture it was.
        mime = url[len("data:") :].split(",", 1)[0].split(";", 1)[0]
        ref = f"sha256:{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()}"
    else:
        mime, ref = mimetypes.guess_type(url.split("?", 1)[0])[0] or "", url
    return {"type": "image", "mime": mime if "/" in mime else "image/unknown", "ref": ref}
