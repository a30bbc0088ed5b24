"""Rows that only matter for a while are removed, a bounded number at a time."""

from __future__ import annotations

from pipeline.adapters.ledger.connection import Ledger, run

# table → (time column, days kept). Invocations are kept for reports; what they weigh is bounded by their number.
KEPT_DAYS = {
    "embed_log": ("at", 2),
    "flip_log": ("at", 2),
    "idempotency": ("at", 1),
    "llm_memo": ("at", 30),
    "tool_invocation": ("at", 90),
}
PAGE = 10_000


class HousekeepingLedger(Ledger):
    """The ``Housekeeping`` port on PostgreSQL."""

    def trim(self) -> dict[str, int]:
        """Deletes at most a page of expired rows per table; returns how many of each."""
        return {table: self._trim(table, column, days) for table, (column, days) in KEPT_DAYS.items()}

    def _trim(self, table: str, column: str, days: int) -> int:
        with self._transaction() as connection:
            return run(
                connection,
                f"DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table}"
                f" WHERE {column} < clock_timestamp() - make_interval(days => :days) LIMIT :page)",
                days=days,
                page=PAGE,
            )
