"""Rings the prepare queue beside the request: a frozen broker delays no answer, and rings never pile up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("wellhead.api")


class Bell:
    """``ring()`` returns at once. Rings that come while one is being sent become one more, however many they are."""

    def __init__(self, send: Callable[[], bool]) -> None:
        self._send = send
        self._wanted = threading.Event()
        self._closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def ring(self) -> None:
        """Work was committed. A ring that gets lost costs a sweep's wait, nothing more."""
        self._wanted.set()
        with self._starting:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="bell", daemon=True)
                self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Sends what is still wanted, for at most ``seconds``."""
        with self._starting:
            self._closed = True
            thread = self._thread
        self._wanted.set()
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._send()
            except Exception:
                # The thread has to outlive any broker; the sweep rings for what was not heard.
                log.exception("could not ring the prepare queue")
            if self._closed and not self._wanted.is_set():
                return
