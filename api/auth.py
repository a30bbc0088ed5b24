"""Who is calling: an API key decides the tenant and what may be done; without any key only loopback is open."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from api.errors import Forbidden, Unauthorized
from pipeline.adapters.ledger.keys import SCOPES, Found, hash_of
from pipeline.settings import Settings

DEFAULT_TENANT = "default"
# A revoked key stops working this much later at the latest.
REMEMBERED_SECONDS = 1.0
REMEMBERED_KEYS = 1000


class Keys(Protocol):
    """What the gate asks the ledger."""

    def find(self, secret: str | None) -> Found: ...
    def any_active(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An admitted caller. ``key``: the shown prefix of its API key, None on an open loopback server."""

    tenant: str
    scopes: frozenset[str]
    key: str | None = None


class Gate:
    """Admits or refuses; asks the ledger at most once a second per key."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, Found]] = {}

    def admit(self, request: Request, secret: str | None, scope: str) -> Caller:
        """Raises Unauthorized (401) without a valid key where keys exist, Forbidden (403) for a missing scope."""
        found = self._find(secret)
        if not found.configured:
            _only_loopback(request)
            return Caller(tenant=DEFAULT_TENANT, scopes=frozenset(SCOPES))
        if found.key is None:
            raise Unauthorized("the API key is unknown or revoked" if secret else "send an API key as a bearer token")
        scopes = frozenset(found.key.scopes)
        if scope not in scopes and "admin" not in scopes:
            raise Forbidden(f"the API key {found.key.prefix}… lacks the scope {scope!r}", scope=scope)
        return Caller(tenant=found.key.tenant, scopes=scopes, key=found.key.prefix)

    def _find(self, secret: str | None) -> Found:
        name, now = hash_of(secret or ""), self._clock()
        with self._lock:
            known = self._seen.get(name)
        if known is not None and now - known[0] < REMEMBERED_SECONDS:
            return known[1]
        found = self._keys.find(secret)
        with self._lock:
            if len(self._seen) >= REMEMBERED_KEYS:
                self._seen.clear()
            self._seen[name] = (now, found)
        return found


def _only_loopback(request: Request) -> None:
    """Any web page can make a browser here send requests to loopback; its Host or Origin gives it away."""
    server = request.scope.get("server") or ("", 0)
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    origin = request.headers.get("origin")
    places = [str(server[0]), host, *([urlsplit(origin).hostname or "null"] if origin else [])]
    if not all(map(is_loopback, places)):
        raise Forbidden("without API keys only this machine is served: make one with 'wellhead keys create'")


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_host(settings: Settings, keys: Keys) -> None:
    """Raises SystemExit with one sentence for a server that would stand open beyond this machine."""
    if not is_loopback(settings.api_host) and not keys.any_active():
        raise SystemExit(
            f"Without an API key the API listens on this machine only, not on {settings.api_host} "
            "(WELLHEAD_API_HOST): make a key first with 'wellhead keys create NAME'."
        )


_bearer = HTTPBearer(auto_error=False, description="An API key from `wellhead keys create`.")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, description="The same, where no bearer token can be sent.")


def _requires(scope: str) -> Callable[..., Caller]:
    def admitted(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        header: Annotated[str | None, Security(_header)],
    ) -> Caller:
        gate: Gate = request.app.state.services.gate
        return gate.admit(request, bearer.credentials if bearer else header, scope)

    return admitted


def require_write(caller: Caller) -> None:
    """For a request that only sometimes changes something. Raises Forbidden (403)."""
    if not caller.scopes & {"write", "admin"}:
        raise Forbidden(f"the API key {caller.key}… lacks the scope 'write'", scope="write")


Reader = Annotated[Caller, Depends(_requires("read"))]
Writer = Annotated[Caller, Depends(_requires("write"))]
Admin = Annotated[Caller, Depends(_requires("admin"))]
