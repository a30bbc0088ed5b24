"""A process of callers that take episodes out and acknowledge them, until nothing is left; to be killed in between.

Run as ``python -m tests.faults.lease_callers DATABASE_URL GENERATION LOG CALLERS SECONDS``.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

import sqlalchemy as sa

from pipeline.adapters.ledger.connection import make_engine
from pipeline.adapters.ledger.recalls import RecallLedger
from pipeline.errors import Conflict
from pipeline.remembered import Narrowing

WITHIN = Narrowing(tenant="default")


def main() -> None:
    url, generation, log, callers, seconds = sys.argv[1:]
    engine = make_engine(url, 10)
    with engine.begin() as connection:
        ranked = list(
            connection.execute(sa.text("SELECT id FROM document WHERE kind = 'episode' ORDER BY id")).scalars()
        )
    threads = [
        threading.Thread(target=take, args=(RecallLedger(engine), int(generation), ranked, log, float(seconds)))
        for _ in range(int(callers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def take(ledger: RecallLedger, generation: int, ranked: list[int], log: str, seconds: float) -> None:
    misses = 0
    while misses < 3:
        leased = ledger.lease(generation, ranked, 1, WITHIN, None, seconds)
        if leased is None:
            # Held by others, who may be dead: their leases lapse first.
            misses += 1
            time.sleep(seconds / 2 + 0.1)
            continue
        write(log, f"held {leased.versions[0][0]}")
        time.sleep(random.uniform(0.0, 0.05))
        try:
            (key,) = ledger.acknowledge("default", leased.lease)
        except Conflict:
            write(log, f"lapsed {leased.versions[0][0]}")
        else:
            write(log, f"acked {key}")


def write(log: str, line: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


if __name__ == "__main__":
    main()
