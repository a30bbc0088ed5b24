"""During a model change the next encoder is loaded before it is needed: the first question after a swap waits for nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from pipeline.errors import PipelineError
from pipeline.fingerprint import Space
from pipeline.generation import Generation, Status
from pipeline.ports import Embedder, Role

log = logging.getLogger("wellhead.api")
LOOK_SECONDS = 5.0


class SecondEncoder:
    """A thread that looks for a generation which is being built, and readies its encoder for questions."""

    def __init__(
        self, active: Callable[[], Sequence[Generation]], embedder_for: Callable[[Space], Embedder | None]
    ) -> None:
        self._active = active
        self._embedder_for = embedder_for
        self._ready: set[str] = set()
        self._ended = threading.Event()

    def start(self) -> None:
        """Looks every few seconds, until :meth:`close`."""
        threading.Thread(target=self._run, name="second-encoder", daemon=True).start()

    def close(self) -> None:
        """Ends the thread at its next look."""
        self._ended.set()

    def look(self) -> None:
        """Readies what is being built; an encoder that is not there yet is asked for again at the next look."""
        for generation in self._active():
            space = generation.space
            if generation.status is not Status.BUILDING or space.name in self._ready:
                continue
            embedder = self._embedder_for(space)
            if embedder is not None:
                embedder.encode(embedder.tokenize(["warm"], Role.QUERY))
                self._ready.add(space.name)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except PipelineError as error:
                log.info("the next encoder could not be readied: %s", error)
            except Exception:
                # Lookups load it themselves; the thread must outlive whatever a model raises.
                log.exception("the next encoder could not be readied")
