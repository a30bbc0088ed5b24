"""``wellhead up``: one foreground process that starts everything, watches it and stops it in the right order."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ops import processes
from ops.services import LOOPBACK, free_ports
from ops.stack import Stack, forget, migrate, publish
from ops.supervisor import Child, Command, StackError, Supervisor, stop_all, wait_ready
from pipeline.errors import PipelineError
from pipeline.settings import Settings

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]
OnReady = Callable[[dict[str, Any]], int | None]


class _StopAskedError(BaseException):
    """Ctrl-C or a stop signal: not an error, so nothing but ``up`` may catch it."""


def up(settings: Settings, *, say: Say, on_ready: OnReady | None = None) -> int:
    """Run the whole of one machine until a signal, a part that keeps dying, or ``on_ready`` ends it.

    ``say`` gets one-line messages. ``on_ready`` runs in a thread of its own with what ``stack.json`` says, while the
    parts are being watched; an int it returns is the exit status to stop with, None means stay up. Returns the exit
    status: 0 after a signal. Raises StackError (and what ``on_ready`` raises) after everything was stopped.
    """
    settings = _with_ports(settings)
    app: list[Child] = []
    with _stop_signals(app):
        try:
            with Stack(settings) as stack:
                try:
                    return _run(stack, app, say, on_ready)
                finally:
                    _ignore_first_signal(app)
                    forget(stack.data_dir)
                    _stop_app(app, say)
        except _StopAskedError:
            return 0


def _run(stack: Stack, app: list[Child], say: Say, on_ready: OnReady | None) -> int:
    settings = stack.settings
    migrate(stack.url("database_url"))
    _ensure_model(settings, stack.data_dir / "models")

    def start(command: Command) -> None:
        app.append(stack.child(command))
        app[-1].start()

    *workers, beat = processes.workers(settings)
    for command in (processes.api(settings), *workers):
        start(command)
    api = f"http://{_reachable(settings.api_host)}:{settings.api_port}"
    wait_ready(app[0], lambda: is_ready(f"{api}/readyz"), seconds=90.0)
    # Who ticks and who only watches come last: what answers and embeds has the cores first.
    for command in (beat, processes.flower(settings)):
        start(command)
    info = publish(stack, api=api, flower=f"http://{LOOPBACK}:{settings.flower_port}")
    supervisor = Supervisor([*stack.children.values(), *app], say=say)
    return _watch(supervisor, _Work(on_ready, info))


def _watch(supervisor: Supervisor, work: _Work) -> int:
    while True:
        supervisor.step(time.monotonic())
        if (status := work.status()) is not None:
            return status
        time.sleep(0.2)


class _Work:
    """``on_ready`` in a thread; the main thread goes on watching, because it alone may start children."""

    def __init__(self, on_ready: OnReady | None, info: dict[str, Any]) -> None:
        self._result: int | None = None
        self._error: BaseException | None = None
        if on_ready is not None:
            threading.Thread(target=self._run, args=(on_ready, info), name="on-ready", daemon=True).start()

    def _run(self, on_ready: OnReady, info: dict[str, Any]) -> None:
        try:
            self._result = on_ready(info)
        except BaseException as error:  # raised again in the main thread
            self._error = error

    def status(self) -> int | None:
        """The exit status it asked for, or None. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result


def _stop_app(app: Sequence[Child], say: Say) -> None:
    """Workers, beat and Flower first, the API last, so that nobody is refused before the work ends."""
    say("Stopping; the workers finish the batch they are at …")
    killed = [*stop_all(app[1:]), *stop_all(app[:1])]
    if killed:
        say(f"Had to be killed: {', '.join(killed)}. Their work is picked up at the next start.")


def _with_ports(settings: Settings) -> Settings:
    """Port 0 becomes a free one; a port that is taken is an error that says by whom."""
    update: dict[str, int] = {}
    for name, host in (("api_port", settings.api_host), ("flower_port", LOOPBACK)):
        port = int(getattr(settings, name))
        if port == 0:
            update[name] = free_ports(1)[0]
        elif not _free(host, port):
            holder = _holder(port)
            raise StackError(
                f"Port {port} (WELLHEAD_{name.upper()}) is already taken{f' by {holder}' if holder else ''}: "
                "stop that program, or choose another port (0: any free one)."
            )
    # Validated again, so that the values count as given and reach the children.
    values = {name: getattr(settings, name) for name in settings.model_fields_set}
    return Settings(**{**values, **update, "data_dir": settings.data_dir.expanduser().resolve()})


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the servers do: connections of an earlier run that still linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError as error:
            raise StackError(f"Port {port} needs more rights than this user has: choose one above 1023.") from error
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    """``name (pid n)`` of the process that listens on ``port``, or nothing where /proc does not tell."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        rows = [row.split() for row in table.read_text().splitlines()[1:]] if table.exists() else []
        inodes |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) in inodes:
                process = descriptor.parent.parent
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue  # another user's process, or one that just ended
    return ""


def _ensure_model(settings: Settings, models: Path) -> None:
    """Unpack the bundled model; a path names a model that is already there."""
    if settings.embedder != "onnx" or Path(settings.embed_model).is_absolute():
        return
    from ops.bundled_model import ensure

    try:
        ensure(models, settings.embed_model)
    except PipelineError as error:
        raise StackError(f"{str(error).removesuffix('.')}.") from error


def _reachable(host: str) -> str:
    """The address at which a server bound to ``host`` is reached from here."""
    wildcard = {"0.0.0.0": LOOPBACK, "::": "[::1]"}  # noqa: S104 - compared, not bound
    return wildcard.get(host, f"[{host}]" if ":" in host else host)


def is_ready(url: str) -> bool:
    """Ready, and no part still loading: the first question is answered by the encoder, not in spite of it."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own http URL
            return "loading" not in json.load(answer)["parts"].values()
    except OSError:
        return False


@contextmanager
def _stop_signals(app: Sequence[Child]) -> Iterator[None]:
    """The first signal unwinds ``up``; from then on a further one kills what is still stopping."""

    def first(_number: int, _frame: FrameType | None) -> None:
        _ignore_first_signal(app)
        raise _StopAskedError

    before = {number: signal.signal(number, first) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_first_signal(app: Sequence[Child]) -> None:
    def further(_number: int, _frame: FrameType | None) -> None:
        for child in app:
            if child.pid and child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)

    for number in STOP_SIGNALS:
        signal.signal(number, further)
