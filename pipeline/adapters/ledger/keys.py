"""API keys: only the SHA-256 of a key is stored; the key itself is shown once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.adapters.ledger.connection import Ledger, one, rows, scalar
from pipeline.errors import Conflict, InvalidInput, NotFound

SCOPES = ("read", "write", "admin")
_MARK = "wh_"
_SHOWN = 11


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key as it is listed: ``prefix`` is its beginning, enough to tell it from the others."""

    id: int
    tenant: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """``configured``: a key was ever made here; ``key``: the one that was offered, unless unknown or revoked."""

    configured: bool
    key: ApiKey | None


class KeyLedger(Ledger):
    """The keys of all tenants."""

    def create(self, tenant: str, name: str, scopes: Sequence[str]) -> tuple[str, ApiKey]:
        """A new key (its text, which is not kept) and its row. Raises InvalidInput for an unknown scope."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise InvalidInput(f"scopes are {', '.join(SCOPES)}; not {', '.join(unknown) or 'none'}", field="scopes")
        if not tenant.strip():
            raise InvalidInput("a key belongs to a tenant", field="tenant")
        secret = _MARK + secrets.token_urlsafe(32)
        with self._transaction() as connection:
            row = one(
                connection,
                "INSERT INTO api_key (tenant, name, prefix, hash, scopes) VALUES (:tenant, :name, :prefix, :hash, :scopes)"
                " RETURNING id, tenant, name, prefix, scopes, created_at, revoked_at",
                tenant=tenant,
                name=name,
                prefix=secret[:_SHOWN],
                hash=hash_of(secret),
                scopes=[s for s in SCOPES if s in scopes],
            )
        assert row is not None
        return secret, _key(row)

    def all(self, tenant: str | None = None) -> list[ApiKey]:
        """Every key, revoked ones too, oldest first."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT id, tenant, name, prefix, scopes, created_at, revoked_at FROM api_key"
                " WHERE CAST(:tenant AS text) IS NULL OR tenant = :tenant ORDER BY id",
                tenant=tenant,
            )
        return [_key(r) for r in found]

    def revoke(self, prefix: str) -> ApiKey:
        """Ends the one active key that begins so. Raises NotFound, or Conflict when several do."""
        if len(prefix) < len(_MARK) + 1:
            raise InvalidInput("give the key's prefix as 'keys list' shows it", field="prefix")
        with self._transaction() as connection:
            found = rows(
                connection,
                "UPDATE api_key SET revoked_at = clock_timestamp() WHERE starts_with(:prefix, prefix)"
                " AND revoked_at IS NULL RETURNING id, tenant, name, prefix, scopes, created_at, revoked_at",
                prefix=prefix,
            )
            if len(found) > 1:
                raise Conflict(f"{len(found)} keys begin with {prefix!r}")
        if not found:
            raise NotFound(f"no active key begins with {prefix!r}")
        return _key(found[0])

    def find(self, secret: str | None) -> Found:
        """Who offers this key, and whether keys are used here at all: one query."""
        with self._transaction() as connection:
            configured = scalar(connection, "SELECT EXISTS (SELECT FROM api_key)")
            row = one(
                connection,
                "SELECT id, tenant, name, prefix, scopes, created_at, revoked_at FROM api_key"
                " WHERE hash = :hash AND revoked_at IS NULL",
                hash=hash_of(secret or ""),
            )
        return Found(configured=bool(configured), key=None if row is None else _key(row))

    def any_active(self) -> bool:
        """Whether somebody could get in with a key."""
        with self._transaction() as connection:
            return bool(scalar(connection, "SELECT EXISTS (SELECT FROM api_key WHERE revoked_at IS NULL)"))


def hash_of(secret: str) -> str:
    """What is stored: a key has 256 random bits, so nothing slow or salted is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _key(row: dict[str, object]) -> ApiKey:
    return ApiKey(**{**row, "scopes": tuple(row["scopes"])})  # type: ignore[arg-type]  # the columns are the fields
