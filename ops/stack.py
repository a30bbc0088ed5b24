"""The services of one machine: started when no URL names them, found again, stopped together.

``with Stack(settings) as stack`` starts PostgreSQL, two Valkeys and Milvus Lite as far as they are missing.
The data directory is locked while any of them runs: the children hold the lock too, so that the remains of
a killed stack and a new one never write the same files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from ops.postgres import Postgres
from ops.services import MilvusLite, Service, Valkey, free_ports
from ops.supervisor import Child, Command, StackError, stop_all, wait_ready
from pipeline.settings import Settings

__all__ = ["SERVICE_SETTINGS", "Stack", "StackError", "find", "forget", "migrate", "publish"]

SERVICE_SETTINGS = ("database_url", "broker_url", "memory_url", "milvus_uri")
LOCK_WAIT_SECONDS = 60.0


class Stack:
    """The services among ``only`` that ``settings`` names no URL for. ``durable=False``: no fsync, throw-away data."""

    def __init__(self, settings: Settings, *, durable: bool = True, only: Sequence[str] = SERVICE_SETTINGS) -> None:
        self.settings = settings
        self.data_dir = settings.data_dir.expanduser().resolve()
        self.children: dict[str, Child] = {}
        self._urls: dict[str, str] = {}
        self._durable = durable
        self._only = tuple(only)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def urls(self) -> dict[str, str]:
        """Environment name → URL of every service, given or started here."""
        return {f"WELLHEAD_{name.upper()}": self.url(name) for name in SERVICE_SETTINGS}

    def url(self, setting: str) -> str:
        """The URL of one service by the name of its setting."""
        return str(getattr(self.settings, setting) or self._urls.get(setting, ""))

    def environment(self) -> dict[str, str]:
        """What a child process needs: this process's environment, the settings in force, the URLs."""
        return {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **_as_environment(self.settings),
            **self.urls,
            "WELLHEAD_DATA_DIR": str(self.data_dir),
        }

    def child(self, command: Command) -> Child:
        """A further process of this stack, with its environment, log directory and lock; not started yet."""
        if self._lock is None:
            raise StackError("The stack is not started.")
        inherit = (self._lock,)
        return Child(command, log_dir=self.data_dir / "logs", env=self.environment(), inherit=inherit)

    def start(self) -> None:
        """Start what is missing and wait until all of it answers. Raises StackError and leaves nothing running."""
        _make_data_dir(self.data_dir)
        self._lock = _lock(self.data_dir)
        try:
            started = [(service, self._launch(service)) for service in self._missing()]
            for service, child in started:
                wait_ready(child, service.ready)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop Milvus, then Valkey, then PostgreSQL, and free the data directory. Twice is no error."""
        for prefix in ("milvus", "valkey", "postgres"):
            stop_all(child for name, child in self.children.items() if name.startswith(prefix))
        self.children.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _launch(self, service: Service) -> Child:
        child = self.child(service.command())
        self.children[child.command.name] = child
        self._urls[service.setting] = service.url
        child.start()
        return child

    def _missing(self) -> Iterator[Service]:
        """PostgreSQL last: the others start while its first initialisation runs."""
        milvus, broker, memory, postgres = free_ports(4)
        services: tuple[Service, ...] = (
            MilvusLite(directory=self.data_dir / "milvus", port=milvus),
            Valkey(directory=self.data_dir / "broker", port=broker, setting="broker_url"),
            Valkey(directory=self.data_dir / "memory", port=memory, setting="memory_url"),
            Postgres(directory=self.data_dir / "postgres", port=postgres, durable=self._durable),
        )
        wanted = (service for service in services if service.setting in self._only)
        return (service for service in wanted if not getattr(self.settings, service.setting))


def migrate(url: str) -> None:
    """Bring the database at ``url`` (``postgresql+psycopg://…``) to the newest schema; nothing to do is no error."""
    import alembic.command
    import alembic.config

    import migrations

    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(str(migrations.__file__)).parent))
    config.attributes["url"] = url
    alembic.command.upgrade(config, "head")


def publish(stack: Stack, *, api: str, flower: str) -> dict[str, Any]:
    """Write ``stack.json``, by which other commands find this stack, and return what it says."""
    services = {name: stack.url(name) for name in SERVICE_SETTINGS}
    info = {"api": api, "flower": flower, "docs": f"{api}/docs", "data_dir": str(stack.data_dir), "pid": os.getpid()}
    info["services"] = services
    file, new = _info_file(stack.data_dir), stack.data_dir / "stack.json.new"
    # Only its owner may read it: it holds the database's password.
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps(info, indent=2))
    new.replace(file)
    return info


def find(data_dir: Path) -> dict[str, Any] | None:
    """What ``stack.json`` in ``data_dir`` says of a stack that runs now, or None."""
    try:
        info = json.loads(_info_file(data_dir).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info if isinstance(info, dict) and _alive(int(info["pid"])) and _locked(data_dir) else None


def forget(data_dir: Path) -> None:
    """Remove ``stack.json``."""
    _info_file(data_dir).unlink(missing_ok=True)


def _info_file(data_dir: Path) -> Path:
    return data_dir / "stack.json"


def _as_environment(settings: Settings) -> dict[str, str]:
    """The settings that were given (by whatever means) as environment variables."""
    values = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {
        f"WELLHEAD_{name.upper()}": value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _make_data_dir(data_dir: Path) -> None:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / "logs").mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            # PostgreSQL's account passes through; what others must not read has a mode of its own.
            data_dir.chmod(data_dir.stat().st_mode | 0o011)
    except OSError as error:
        raise _not_writable(data_dir, error) from error


def _not_writable(data_dir: Path, error: OSError) -> StackError:
    advice = "choose another directory with --data-dir or WELLHEAD_DATA_DIR"
    return StackError(f"The data directory {data_dir} cannot be written ({error.strerror}): {advice}.")


def _lock(data_dir: Path) -> int:
    """The locked file's descriptor. The remains of a killed stack get a minute to end."""
    try:
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_writable(data_dir, error) from error
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            return lock
        pid = int(os.pread(lock, 32, 0) or b"0")
        if _alive(pid) or time.monotonic() > deadline:
            os.close(lock)
            who = f"a running stack (pid {pid})" if _alive(pid) else "the processes of a stack that was killed"
            raise StackError(f"The data directory {data_dir} is in use by {who}: stop it or choose another.")
        time.sleep(0.2)


def _locked(data_dir: Path) -> bool:
    """Whether anybody holds the lock: after a restart of the machine the old pid may be somebody else's."""
    try:
        with (data_dir / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
