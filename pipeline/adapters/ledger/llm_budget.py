"""The LLM's budgets, memo and account: shared by all workers through PostgreSQL, so a flushed Redis forgets no cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from pipeline.adapters.ledger.connection import Ledger, one, rows, run, scalar
from pipeline.llm import Purpose, Reply

# Whoever books a call holds it for the length of two short statements.
BUDGET_LOCK = 7_305_802


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Of a million tokens, in whatever currency."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one tenant used for one purpose on one day (UTC)."""

    tenant: str
    purpose: str
    day: date
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The budgets now. ``wait``: seconds until a call may be made, ``reason`` why not before."""

    calls_last_hour: int
    tokens_last_day: int
    wait: float
    reason: str | None
    succeeded_at: datetime | None


class LlmBudgetLedger(Ledger):
    """The ``Budget`` port on PostgreSQL: sliding windows by minute, a shared pause, and the account."""

    def __init__(
        self, engine: Engine, endpoint: str, calls_per_hour: int, tokens_per_day: int, prices: Prices | None = None
    ) -> None:
        super().__init__(engine)
        self._endpoint = endpoint
        self._calls = calls_per_hour
        self._tokens = tokens_per_day
        self._prices = prices or Prices()

    def wait(self) -> float:
        """Seconds until a call may be made."""
        with self._transaction() as connection:
            return self._wait(connection)[0]

    def reserve(self, tokens: int) -> float:
        """Books a call now; a positive answer booked nothing. Overshoots a cap by the one call that reaches it."""
        with self._transaction() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=BUDGET_LOCK)
            wait = self._wait(connection)[0]
            if wait <= 0:
                add_to_window(connection, calls=1, tokens=tokens)
            return wait

    def settle(self, tenant: str, purpose: Purpose, reserved: int, reply: Reply | None) -> None:
        """Puts the real numbers in the place of the estimate, and on the tenant's account."""
        used = 0 if reply is None else reply.tokens_in + reply.tokens_out
        with self._transaction() as connection:
            # Perhaps another minute than the one it was booked in; the sum is what counts.
            add_to_window(connection, calls=0, tokens=used - reserved)
            if reply is None:
                return
            cost = (reply.tokens_in * self._prices.tokens_in + reply.tokens_out * self._prices.tokens_out) / 1e6
            run(
                connection,
                "INSERT INTO llm_usage (tenant, purpose, day, calls, tokens_in, tokens_out, cost) VALUES (:tenant,"
                " :purpose, (clock_timestamp() AT TIME ZONE 'UTC')::date, 1, :tokens_in, :tokens_out, :cost)"
                " ON CONFLICT (tenant, purpose, day) DO UPDATE SET calls = llm_usage.calls + 1,"
                " tokens_in = llm_usage.tokens_in + excluded.tokens_in,"
                " tokens_out = llm_usage.tokens_out + excluded.tokens_out, cost = llm_usage.cost + excluded.cost",
                tenant=tenant,
                purpose=purpose.value,
                tokens_in=reply.tokens_in,
                tokens_out=reply.tokens_out,
                cost=cost,
            )
            run(
                connection,
                "INSERT INTO llm_endpoint (name, succeeded_at) VALUES (:name, clock_timestamp())"
                " ON CONFLICT (name) DO UPDATE SET succeeded_at = excluded.succeeded_at",
                name=self._endpoint,
            )

    def pause(self, seconds: float, reason: str) -> None:
        """No worker calls the endpoint before then; a longer pause that is under way stays."""
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO llm_endpoint (name, paused_until, reason) VALUES (:name,"
                " clock_timestamp() + make_interval(secs => :seconds), :reason) ON CONFLICT (name) DO UPDATE SET"
                " paused_until = greatest(llm_endpoint.paused_until, excluded.paused_until), reason = excluded.reason",
                name=self._endpoint,
                seconds=seconds,
                reason=reason[:500],
            )

    def usage(self, days: int = 1, tenant: str | None = None) -> list[Usage]:
        """The account of the last ``days`` days (UTC, today included), of one tenant or of all."""
        with self._transaction() as connection:
            found = rows(
                connection,
                "SELECT * FROM llm_usage WHERE day > (clock_timestamp() AT TIME ZONE 'UTC')::date - CAST(:days AS int)"
                " AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant) ORDER BY day DESC, tenant, purpose",
                days=days,
                tenant=tenant,
            )
        return [Usage(**r) for r in found]

    def standing(self) -> Standing:
        """What ``status`` and ``/metrics`` say of the budgets and the endpoint."""
        with self._transaction() as connection:
            wait, reason = self._wait(connection)
            calls, tokens = _sums(_window(connection))
            at = scalar(connection, "SELECT succeeded_at FROM llm_endpoint WHERE name = :name", name=self._endpoint)
        return Standing(
            calls_last_hour=calls, tokens_last_day=tokens, wait=max(0.0, wait), reason=reason, succeeded_at=at
        )

    def _wait(self, connection: Connection) -> tuple[float, str | None]:
        paused = one(
            connection,
            "SELECT extract(epoch FROM paused_until - clock_timestamp())::float AS wait, reason FROM llm_endpoint"
            " WHERE name = :name AND paused_until > clock_timestamp()",
            name=self._endpoint,
        )
        window = _window(connection)
        hour = [r for r in window if r["age"] < 3660]
        waits = [
            (float(paused["wait"]) if paused else 0.0, f"the endpoint asked to wait: {paused and paused['reason']}"),
            (_until(hour, "calls", self._calls, 3660), f"{self._calls:,} calls per hour are used up"),
            (_until(window, "tokens", self._tokens, 86_460), f"{self._tokens:,} tokens per day are used up"),
        ]
        wait, reason = max(waits, key=lambda w: w[0])
        return wait, reason if wait > 0 else None


class MemoLedger(Ledger):
    """The ``Memo`` port on PostgreSQL."""

    def recall(self, input_hash: str) -> dict[str, Any] | None:
        """The answer to the same question, if it was ever given."""
        with self._transaction() as connection:
            row = one(connection, "SELECT output FROM llm_memo WHERE input_hash = :hash", hash=input_hash)
            return None if row is None else dict(row["output"])

    def keep(self, input_hash: str, output: Mapping[str, Any]) -> None:
        """Keeps an answer; the first one stays."""
        with self._transaction() as connection:
            run(
                connection,
                "INSERT INTO llm_memo (input_hash, output) VALUES (:hash, CAST(:output AS jsonb))"
                " ON CONFLICT (input_hash) DO NOTHING",
                hash=input_hash,
                output=json.dumps(output, ensure_ascii=False),
            )


def refreshes_left(connection: Connection, per_hour: int) -> int:
    """How many stale summaries may be rewritten now: a sixtieth of the hour's worth each minute, rounded up.

    Holds the budget's lock until the transaction ends, so that :func:`add_to_window` books what was taken.
    """
    run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=BUDGET_LOCK)
    window = _window(connection)
    hour = sum(int(r["refreshes"]) for r in window if r["age"] < 3600)
    minute = sum(int(r["refreshes"]) for r in window if r["current"])
    return max(0, min(-(-per_hour // 60) - minute, per_hour - hour))


def _window(connection: Connection) -> list[dict[str, Any]]:
    """The minutes of the last day, oldest first; ``age`` in seconds since the minute began."""
    return rows(
        connection,
        "SELECT calls, tokens, refreshes, extract(epoch FROM clock_timestamp() - minute)::float AS age,"
        " minute = date_trunc('minute', clock_timestamp()) AS current FROM llm_window"
        " WHERE minute > clock_timestamp() - interval '86460 seconds' ORDER BY minute",
    )


def _sums(window: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return sum(r["calls"] for r in window if r["age"] < 3660), max(0, sum(r["tokens"] for r in window))


def _until(window: Sequence[dict[str, Any]], column: str, cap: int, span: float) -> float:
    """Seconds until enough of the window has passed out of ``span`` for its sum to be below ``cap``."""
    total = sum(r[column] for r in window)
    if total < cap:
        return 0.0
    for row in window:
        total -= row[column]
        if total < cap:
            return max(1.0, span - float(row["age"]))
    return timedelta(minutes=1).total_seconds()


def add_to_window(connection: Connection, *, calls: int, tokens: int, refreshes: int = 0) -> None:
    """Adds to the current minute."""
    run(
        connection,
        "INSERT INTO llm_window (minute, calls, tokens, refreshes) VALUES (date_trunc('minute', clock_timestamp()),"
        " :calls, :tokens, :refreshes) ON CONFLICT (minute) DO UPDATE SET calls = llm_window.calls + excluded.calls,"
        " tokens = llm_window.tokens + excluded.tokens, refreshes = llm_window.refreshes + excluded.refreshes",
        calls=calls,
        tokens=tokens,
        refreshes=refreshes,
    )
