"""What Milvus's errors mean to the pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from pymilvus.exceptions import MilvusException

from pipeline.errors import CollectionGone, InfrastructureDown

_NOT_FOUND = 100
_LEGACY_NOT_FOUND = 4
_NOT_LOADED = 101
_CANNOT_CONNECT = 2
_DOWN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
_GONE_MESSAGE = re.compile(r"can't find collection|collection not found|collection '.*' does not exist", re.IGNORECASE)
# Server-side trouble that says nothing about the rows: still starting, write quota, memory quota.
_DOWN_MESSAGE = re.compile(
    r"Fail connecting|server unavailable|service (?:unavailable|not ready)|Retry timeout|DEADLINE_EXCEEDED"
    r"|deny to write|quota exceeded|rate limit|node offline|no available shard|channel not available",
    re.IGNORECASE,
)


class NotLoaded(Exception):
    """The collection exists but was released: Milvus Lite forgets what was loaded when it restarts."""


def is_not_found(error: MilvusException) -> bool:
    """True when the error says that the collection does not exist."""
    legacy = error.compatible_code == _LEGACY_NOT_FOUND
    return error.code == _NOT_FOUND or legacy or bool(_GONE_MESSAGE.search(error.message or ""))


def is_down(error: BaseException) -> bool:
    """True when the server did not answer or cannot work now: nobody's rows are to blame."""
    if isinstance(error, grpc.FutureTimeoutError):
        return True
    if isinstance(error, grpc.RpcError):
        return isinstance(error, grpc.Call) and error.code() in _DOWN
    if not isinstance(error, MilvusException):
        return False
    return error.code == _CANNOT_CONNECT or error.code in _DOWN or bool(_DOWN_MESSAGE.search(error.message or ""))


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what the client raises into CollectionGone, InfrastructureDown or NotLoaded; the rest surfaces."""
    try:
        yield
    except MilvusException as error:
        if is_not_found(error):
            raise CollectionGone(f"collection {name} does not exist", collection=name) from error
        if error.code == _NOT_LOADED:
            raise NotLoaded(name) from error
        if is_down(error):
            raise InfrastructureDown(f"Milvus does not answer: {error.message}", part="milvus") from error
        raise
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        if is_down(error):
            raise InfrastructureDown("Milvus does not answer in time", part="milvus") from error
        raise
