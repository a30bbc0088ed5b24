"""How the tools are used and how good their answers are: the views of the schema, one tenant at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.adapters.ledger.connection import Ledger, rows

# Name in the report → view and its order.
_VIEWS = {
    "relevance_levels": ("invocations_by_relevance_level", "count DESC, relevance_level"),
    "dedup_reasons": ("invocations_by_dedup_reason", "count DESC, dedup_reason"),
    "similarities": ("invocations_by_similarity", "similarity"),
    "tools": ("invocations_by_tool", "tool_name, count DESC, relevance_level"),
}


class ReportLedger(Ledger):
    """Reads the views of ``tool_invocation``."""

    def report(self, tenant: str) -> dict[str, Sequence[dict[str, Any]]]:
        """The three questions that the product was made to answer, and the use of every tool by level."""
        with self._transaction() as connection:
            found = {
                name: rows(connection, f"SELECT * FROM {view} WHERE tenant = :tenant ORDER BY {order}", tenant=tenant)
                for name, (view, order) in _VIEWS.items()
            }
        return {name: [{k: v for k, v in row.items() if k != "tenant"} for row in view] for name, view in found.items()}
