"""A Milvus Lite server for the tests of a session, as ``wellhead up`` starts one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services import MEMTABLE_BYTES


class LiteServer:
    """One ``milvus-lite server`` process on a fixed port, so that it can be killed and started again."""

    def __init__(self, data: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(Path(sys.executable).with_name("milvus-lite")), "server", "--data-dir", str(self._data)]
        self._data.mkdir(parents=True, exist_ok=True)
        with (self._data.parent / "milvus.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env={**os.environ, "MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES": MEMTABLE_BYTES},
            )
        deadline = time.monotonic() + 60
        while not self._listening():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"milvus-lite did not start, see {self._data.parent / 'milvus.log'}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def _listening(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(scope="session")
def milvus_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Milvus: ``WELLHEAD_TEST_MILVUS_URI``, or a Lite server of this session."""
    given = os.environ.get("WELLHEAD_TEST_MILVUS_URI")
    if given:
        yield given
        return
    server = LiteServer(tmp_path_factory.mktemp("milvus") / "data")
    server.start()
    yield server.uri
    server.stop()
