"""A heartbeat: a claim lives on while its holder works on something that reports no progress of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from pipeline.errors import InfrastructureDown


class Extending(Protocol):
    """Whoever can move a claim's deadline."""

    def extend(self, token: int, seconds: float) -> bool: ...


@contextmanager
def kept(claims: Extending, token: int, seconds: float) -> Iterator[None]:
    """Extends the claim every quarter of ``seconds`` until the block is left, never past its longest time.

    For work that cannot be asked whether it moves, such as cutting one very long text. A process that hangs in it
    is ended by the watchdog; one that is frozen or dead beats no more, and the claim lapses.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(seconds / 4):
            try:
                if not claims.extend(token, seconds):
                    return
            except InfrastructureDown:
                continue  # the next beat may reach the database; until then the deadline stands

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
