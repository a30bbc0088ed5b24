"""One process's way to Milvus: a lazy client, collections that load themselves again, writes one at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from pipeline.adapters.milvus_errors import NotLoaded, translated
from pipeline.adapters.milvus_schema import Server, read_server
from pipeline.errors import InfrastructureDown, PipelineError

T = TypeVar("T")
_LOAD_TRIES = 3
_LOAD_PAUSE = 0.5
_WRITE_TRIES = 5
# Lite's engine is single-writer and its server does not serialise the writes of several processes.
_LITE_RACE = "current_seq is monotonic"
# Channels of one address share a broken connection and its growing pause by default, so that a server that
# is up again would be called down for seconds.
_CHANNEL = {
    "grpc.use_local_subchannel_pool": 1,
    # The client's own ten seconds are too often for Lite, which closes the connection over it; every call has a
    # deadline, so nobody waits for a dead one.
    "grpc.keepalive_time_ms": 330_000,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 1_000,
    "grpc.max_reconnect_backoff_ms": 1_000,
}
_locks: dict[tuple[str, str], threading.Lock] = {}
_locks_guard = threading.Lock()


class Connection:
    """Calls Milvus with a deadline each time. ``timeout`` is in seconds per call."""

    def __init__(self, uri: str, token: str, timeout: float) -> None:
        self.uri = uri
        self.timeout = timeout
        self._token = token
        self._guard = threading.Lock()
        self._client: MilvusClient | None = None
        self._pid = 0
        self._server: Server | None = None

    def client(self) -> MilvusClient:
        """This process's client; a fork gets its own, because a gRPC channel does not survive one."""
        with self._guard:
            if self._client is None or self._pid != os.getpid():
                # Everything it logs is raised here as well; its tracebacks would drown the real log.
                logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
                with translated(""):
                    client = MilvusClient(
                        self.uri, token=self._token, timeout=self.timeout, dedicated=True, grpc_options=_CHANNEL
                    )
                self._client, self._pid, self._server = client, os.getpid(), None
            return self._client

    def close(self) -> None:
        """Give the connection back; the next call opens a new one."""
        with self._guard:
            if self._client is not None and self._pid == os.getpid():
                self._client.close()
            self._client = None

    def server(self, *, fresh: bool = False) -> Server:
        """What the server is: asked once per connection, or now when ``fresh``."""
        client = self.client()
        if self._server is None or fresh:
            with translated(""):
                self._server = read_server(client.get_server_version(timeout=self.timeout))
        return self._server

    def call(self, name: str, function: Callable[[MilvusClient], T]) -> T:
        """Run one call; a released collection is loaded and the call made again, twice at most."""
        for _ in range(2):
            try:
                with translated(name):
                    return function(self.client())
            except NotLoaded:
                self.load(name)
        try:
            with translated(name):
                return function(self.client())
        except NotLoaded as error:
            raise InfrastructureDown(f"collection {name} does not stay loaded", part="milvus") from error

    def write(self, name: str, function: Callable[[MilvusClient], T]) -> T:
        """Run one idempotent write, alone in this process and collection."""
        with _locks_guard:
            lock = _locks.setdefault((self.uri, name), threading.Lock())
        with lock:
            for attempt in range(_WRITE_TRIES):
                try:
                    return self.call(name, function)
                except MilvusException as error:
                    if _LITE_RACE not in (error.message or "") or attempt == _WRITE_TRIES - 1:
                        raise
                    # Another process wrote in the same moment: the batch was refused whole.
                    time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def load(self, name: str) -> None:
        """Load the collection; three tries, because Lite may still be writing its index files."""
        for attempt in range(_LOAD_TRIES):
            try:
                with translated(name):
                    self.client().load_collection(name, timeout=3 * self.timeout)
                return
            except MilvusException as error:
                if attempt == _LOAD_TRIES - 1:
                    raise PipelineError(self._load_sentence(name, error), collection=name) from error
                time.sleep(_LOAD_PAUSE)

    def _load_sentence(self, name: str, error: MilvusException) -> str:
        sentence = f"collection {name} cannot be loaded: {error.message}"
        if self.server().lite:
            sentence += (
                ". An index file of Milvus Lite may be torn: stop its server, delete"
                f" collections/{name}/partitions/*/indexes/*.idx in its data directory and start it again;"
                " the vectors themselves are not in those files"
            )
        return sentence
