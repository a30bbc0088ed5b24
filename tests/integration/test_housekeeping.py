"""Expired rows go, young ones stay."""

from __future__ import annotations

from pipeline.adapters.ledger.housekeeping import HousekeepingLedger


def test_only_expired_rows_are_removed(ledgers):
    ledgers.rows(
        "INSERT INTO flip_log (at, lane, seconds) VALUES (clock_timestamp() - interval '3 days', 0, 1),"
        " (clock_timestamp() - interval '1 day', 0, 1)"
    )
    ledgers.rows(
        "INSERT INTO idempotency (tenant, key, request_hash, at) VALUES ('t', 'old', 'x', clock_timestamp() - interval '25 hours'),"
        " ('t', 'new', 'x', clock_timestamp())"
    )
    trimmed = HousekeepingLedger(ledgers.engine).trim()
    assert (trimmed["flip_log"], trimmed["idempotency"], trimmed["embed_log"]) == (1, 1, 0)
    assert ledgers.rows("SELECT key FROM idempotency") == [{"key": "new"}]
