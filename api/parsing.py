"""Bodies and headers → values; what cannot be read is an InvalidInput that names the field."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import Header, Query

from pipeline.documents import Lane
from pipeline.errors import InvalidInput
from pipeline.json_records import BadJson, parse

LaneName = Literal["live", "backfill"]
LaneQuery = Annotated[LaneName, Query(description="live: somebody is waiting. backfill: nobody is.")]
IfMatch = Annotated[str | None, Header(description='The version that must be the newest one, in quotes: "3".')]

_ETAG = re.compile(r'"(\d{1,10})"')


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in ``data``: strict UTF-8, no NaN, bounded depth."""
    try:
        value = parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 (byte {error.start})", field="") from None
    except BadJson as error:
        raise InvalidInput(f"the body is not JSON: {error}", field="") from None
    if not isinstance(value, dict):
        raise InvalidInput("the body must be a JSON object", field="")
    return value


def lane_of(name: LaneName) -> Lane:
    """``live`` or ``backfill`` as the pipeline knows it."""
    return Lane[name.upper()]


def etag(version: int) -> str:
    """A version as a strong ETag."""
    return f'"{version}"'


def expected_version(if_match: str | None) -> int | None:
    """The version that ``If-Match`` names, None without the header."""
    if if_match is None:
        return None
    found = _ETAG.fullmatch(if_match.strip())
    if found is None:
        raise InvalidInput('If-Match must be one version in quotes, like "3"', field="If-Match")
    return int(found[1])
