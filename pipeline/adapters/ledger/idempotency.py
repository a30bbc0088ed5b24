"""``Idempotency-Key``: the same request again gets the same answer, another one under the key is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, one, run
from pipeline.errors import Conflict, InvalidInput

# A request that has not answered for this long died with its process; its key may be taken over.
ABANDONED_SECONDS = 60
KEPT_HOURS = 24
LONGEST_KEY = 255


@dataclass(frozen=True, kw_only=True)
class StoredAnswer:
    """What the first request was answered."""

    status: int
    response: dict[str, Any]


class IdempotencyLedger(Ledger):
    """Answers by tenant and key."""

    def begin(self, tenant: str, key: str, request_hash: str) -> StoredAnswer | None:
        """None: the request is this caller's to do, then :meth:`finish` or :meth:`release`.

        Raises InvalidInput for a key used with another request, Conflict while the first one is still running.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise InvalidInput(
                f"Idempotency-Key has {len(key)} characters; 1 to {LONGEST_KEY} are allowed",
                field="Idempotency-Key",
                limit=LONGEST_KEY,
            )
        with self._transaction() as connection:
            taken = run(
                connection,
                "INSERT INTO idempotency AS i (tenant, key, request_hash) VALUES (:tenant, :key, :hash)"
                " ON CONFLICT (tenant, key) DO UPDATE SET at = clock_timestamp(), request_hash = excluded.request_hash,"
                " status = NULL, response = NULL WHERE"
                " (i.status IS NULL AND i.request_hash = excluded.request_hash"
                "  AND i.at < clock_timestamp() - make_interval(secs => :abandoned))"
                " OR i.at < clock_timestamp() - make_interval(hours => :kept)",
                tenant=tenant,
                key=key,
                hash=request_hash,
                abandoned=ABANDONED_SECONDS,
                kept=KEPT_HOURS,
            )
            if taken:
                return None
            row = one(
                connection,
                "SELECT request_hash, status, response FROM idempotency WHERE tenant = :tenant AND key = :key",
                tenant=tenant,
                key=key,
            )
        if row is None:
            raise Conflict("the first request with this Idempotency-Key has just failed; send it again", retry_after=1)
        if row["request_hash"] != request_hash:
            raise InvalidInput("Idempotency-Key was used for another request", field="Idempotency-Key")
        if row["status"] is None:
            raise Conflict("the first request with this Idempotency-Key is still running", retry_after=1)
        return StoredAnswer(status=row["status"], response=row["response"])

    def finish(self, tenant: str, key: str, answer: StoredAnswer) -> None:
        """Keeps the answer for whoever repeats the request."""
        with self._transaction() as connection:
            run(
                connection,
                "UPDATE idempotency SET status = :status, response = CAST(:response AS jsonb)"
                " WHERE tenant = :tenant AND key = :key",
                tenant=tenant,
                key=key,
                status=answer.status,
                response=json.dumps(answer.response, ensure_ascii=False),
            )

    def release(self, tenant: str, key: str) -> None:
        """The request failed: a repetition is a new try."""
        with self._transaction() as connection:
            run(
                connection,
                "DELETE FROM idempotency WHERE tenant = :tenant AND key = :key AND status IS NULL",
                tenant=tenant,
                key=key,
            )
