"""How many events one answer holds, and the cursor that says where the next one goes on. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import InvalidInput
from pipeline.fingerprint import digest


@dataclass(frozen=True, kw_only=True)
class Place:
    """One version of an episode, and the event to go on with."""

    document: int
    version: int
    start: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """``slices``: for each place the events ``[start, end)`` of this answer; ``rest``: what is left for the next."""

    slices: tuple[tuple[int, int], ...]
    rest: tuple[Place, ...]


def fill(places: Sequence[Place], texts: Sequence[Sequence[str]], events: int, characters: int) -> Page:
    """Whole events in order until an answer is full, shared fairly: a long episode does not push out the next.

    An answer holds at least one event, however long it is: nothing is cut within an event.
    """
    ends = [p.start for p in places]
    open_places = list(range(len(places)))
    while open_places and events > 0:
        for at in tuple(open_places):
            if ends[at] >= len(texts[at]):
                open_places.remove(at)
                continue
            size = len(texts[at][ends[at]])
            taken = any(end > p.start for end, p in zip(ends, places, strict=True))
            if taken and (size > characters or events <= 0):
                open_places.remove(at)
                continue
            ends[at] += 1
            events -= 1
            characters -= size
    return Page(
        slices=tuple((p.start, end) for p, end in zip(places, ends, strict=True)),
        rest=tuple(
            Place(document=p.document, version=p.version, start=end)
            for p, end, said in zip(places, ends, texts, strict=True)
            if end < len(said)
        ),
    )


def encode(tenant: str, places: Sequence[Place], lease: str | None) -> str:
    """The cursor: it names places, it opens nothing; what may be seen is asked again when it comes back."""
    content = json.dumps({"p": [[p.document, p.version, p.start] for p in places], "l": lease})
    return base64.urlsafe_b64encode(f"{digest(tenant, content)[:16]}{content}".encode()).decode()


def decode(tenant: str, cursor: str) -> tuple[list[Place], str | None]:
    """Places and lease of a cursor. Raises InvalidInput for anything that is not one of this tenant's."""
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
        mark, content = text[:16], text[16:]
        if mark != digest(tenant, content)[:16]:
            raise ValueError("not of this tenant")
        read = json.loads(content)
        places = [Place(document=d, version=v, start=s) for d, v, s in read["p"]]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise InvalidInput("cursor is not one that an earlier answer gave", field="cursor") from None
    return places, read["l"]
