"""The state of every part, asked in threads: a part that hangs costs a probe, never a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from pipeline.adapters.probes import redis_answers, schema_version
from pipeline.errors import InfrastructureDown, PipelineError
from pipeline.wiring import Parts

OK, DOWN, LOADING, MISSING = "ok", "down", "loading", "missing"
PATIENCE_SECONDS = 2.0
# Load balancers ask often; the parts need not be asked as often.
REMEMBERED_SECONDS = 1.0

Probe = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class PartState:
    """``state``: ok, down, loading or missing; ``detail``: one line for the operator, None when ok."""

    state: str
    detail: str | None = None


class Probing:
    """Asks each part at most once a second and at most once at a time. A probe returns a state or raises."""

    def __init__(self, probes: Mapping[str, Probe], patience: float = PATIENCE_SECONDS) -> None:
        self._probes = dict(probes)
        self._patience = patience
        self._pool = ThreadPoolExecutor(max_workers=len(self._probes), thread_name_prefix="probe")
        self._lock = threading.Lock()
        self._running: dict[str, Future[PartState]] = {}
        self._known: dict[str, tuple[float, PartState]] = {}

    def states(self) -> dict[str, PartState]:
        """Every part's state now; a part that has not answered in two seconds is down."""
        with self._lock:
            asked = {name: self._ask(name) for name in self._probes}
        wait([future for future in asked.values() if isinstance(future, Future)], timeout=self._patience)
        return {name: self._result(name, answer) for name, answer in asked.items()}

    def close(self) -> None:
        """Waits for nobody: a hanging probe ends with the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, name: str) -> PartState | Future[PartState]:
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] < REMEMBERED_SECONDS:
            return known[1]
        running = self._running.get(name)
        if running is None or running.done():
            running = self._running[name] = self._pool.submit(self._run, name)
        return running

    def _run(self, name: str) -> PartState:
        try:
            state = PartState(state=self._probes[name]())
        except InfrastructureDown as error:
            state = PartState(state=DOWN, detail=str(error))
        except Exception as error:
            # A client library may raise anything for a wrong address; none of it may end the probing.
            state = PartState(state=DOWN, detail=f"{type(error).__name__}: {error}")
        self._known[name] = (time.monotonic(), state)
        return state

    def _result(self, name: str, answer: PartState | Future[PartState]) -> PartState:
        if isinstance(answer, PartState):
            return answer
        if not answer.done():
            return PartState(state=DOWN, detail=f"{name} has not answered for {self._patience:g} s")
        return answer.result()


class Encoder:
    """Loads the query encoder in the background when the server starts, so that the first question need not wait."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._state = PartState(state=LOADING)

    def start(self) -> None:
        """Returns at once."""
        threading.Thread(target=self._run, name="encoder", daemon=True).start()

    def probe(self) -> str:
        """``loading`` or ``ok``; raises what loading raised."""
        if self._state.detail is not None:
            raise PipelineError(self._state.detail)
        return self._state.state

    def _run(self) -> None:
        try:
            self._load()
        except Exception as error:
            self._state = PartState(state=DOWN, detail=f"{type(error).__name__}: {error}")
        else:
            self._state = PartState(state=OK)


def probes_of(parts: Parts, encoder: Encoder) -> dict[str, Probe]:
    """One probe for each part of the product."""
    settings = parts.settings

    def postgresql() -> str:
        return OK if schema_version(parts.engine) else MISSING

    def broker() -> str:
        redis_answers(settings.broker_url, part="broker")
        return OK

    def action_memory() -> str:
        redis_answers(settings.memory_url, part="action_memory")
        return OK

    def milvus() -> str:
        parts.vectors.admin().info()
        return OK

    def generation() -> str:
        return OK if parts.generations.serving() else MISSING

    return {
        "postgresql": postgresql,
        "broker": broker,
        "action_memory": action_memory,
        "milvus": milvus,
        "encoder": encoder.probe,
        "generation": generation,
    }
