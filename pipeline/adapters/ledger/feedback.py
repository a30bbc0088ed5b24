"""What people say of answers: a label with the features that the invocation recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, one, run
from pipeline.errors import Conflict, NotFound


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """One label as it was stored. ``counted``: it has features, so that a map can learn from it."""

    invocation_id: str
    relevant: bool
    key: str | None
    generation: int | None
    counted: bool


class FeedbackLedger(Ledger):
    """Rows of ``feedback``."""

    def add(self, tenant: str, invocation_id: str, *, relevant: bool, key: str | None = None) -> Feedback:
        """Labels an invocation's first answer, or the one with this key.

        Raises NotFound for an invocation that is not this tenant's or did not look at ``key``, Conflict for one that
        was no lookup.
        """
        with self._transaction() as connection:
            row = one(
                connection,
                "SELECT tool_name, generation, retrieval_details FROM tool_invocation"
                " WHERE id = :id AND tenant = :tenant",
                id=invocation_id,
                tenant=tenant,
            )
            if row is None:
                raise NotFound(f"there is no invocation {invocation_id!r} (it may take a second to be written)")
            if row["tool_name"] != "lookup_knowledge":
                raise Conflict(f"invocation {invocation_id!r} called {row['tool_name']}: only lookups are labelled")
            candidate = _candidate(row["retrieval_details"], key)
            features = candidate.get("features") or None
            run(
                connection,
                "INSERT INTO feedback (tenant, invocation_id, relevant, key, features, generation)"
                " VALUES (:tenant, :id, :relevant, :key, CAST(:features AS jsonb), :generation)",
                tenant=tenant,
                id=invocation_id,
                relevant=relevant,
                key=candidate.get("key", key),
                features=None if features is None else json.dumps(features),
                generation=row["generation"],
            )
        return Feedback(
            invocation_id=invocation_id,
            relevant=relevant,
            key=candidate.get("key", key),
            generation=row["generation"],
            counted=features is not None,
        )


def _candidate(details: dict[str, Any], key: str | None) -> dict[str, Any]:
    """The best candidate of the invocation, whether it was handed out or not, or the one that was named."""
    candidates: list[dict[str, Any]] = details.get("candidates", [])
    if key is None:
        return candidates[0] if candidates else {}
    for each in candidates:
        if each["key"] == key:
            return each
    raise NotFound(f"the invocation did not look at {key!r}", key=key)
