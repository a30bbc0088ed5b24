"""MCP sessions: an id names its tenant, and what was ended is written down in Redis, so that any process serves any.

Nothing has to be stored for a session to be open: a flushed Redis ends no conversation.
"""

from __future__ import annotations

import uuid
from functools import cached_property

from pipeline.adapters.action_memory import RedisConnection
from pipeline.errors import InfrastructureDown
from pipeline.fingerprint import digest

PREFIX = "mcp-"


class RedisMcpSessions:
    """Opens, checks and ends sessions. ``ttl``: for how many seconds an ended one is remembered as such."""

    def __init__(self, url: str, *, ttl: float, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._ttl = max(1, int(ttl))

    @cached_property
    def _connection(self) -> RedisConnection:
        return RedisConnection(self._url, self._timeout)

    def open(self, tenant: str) -> str:
        """The id of a new session of this tenant."""
        name = uuid.uuid4().hex
        return f"{PREFIX}{name}-{_mark(tenant, name)}"

    def is_open(self, tenant: str, session_id: str) -> bool:
        """Is it a session of this tenant that was not ended? While Redis is down, none counts as ended."""
        name, _, mark = session_id.removeprefix(PREFIX).rpartition("-")
        if not session_id.startswith(PREFIX) or mark != _mark(tenant, name):
            return False
        try:
            return not self._connection.call(lambda: self._connection.client.exists(_key(session_id)))
        except InfrastructureDown:
            return True

    def end(self, session_id: str) -> None:
        """Ends it for every process. Raises InfrastructureDown: an end that nobody hears must not look like one."""
        self._connection.call(lambda: self._connection.client.set(_key(session_id), b"1", ex=self._ttl))


def _mark(tenant: str, name: str) -> str:
    return digest("mcp session", tenant, name)[:16]


def _key(session_id: str) -> str:
    return f"wellhead:mcp:ended:{session_id}"
