"""Child processes of one supervising process: started, watched, restarted, ended together.

Every child is its own session, so that Ctrl-C reaches the supervisor alone and the order of the stop is
ours. The kernel ends the children when the supervisor is killed (``PR_SET_PDEATHSIG``); that signal is
tied to the thread that started the child, so children are started from the main thread only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOG_BYTES = 10 * 1024 * 1024
_LIBC = ctypes.CDLL(None, use_errno=True)


class StackError(Exception):
    """The stack cannot run, said in one sentence. ``detail``: further lines worth showing, such as a log's end."""

    def __init__(self, sentence: str, *, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Command:
    """One program to run. ``stop_signal`` asks it to end; after ``grace_seconds`` it is killed."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0
    account: str | None = None


class Child:
    """One running command; its output goes to ``log_dir/NAME.log``. ``inherit``: file descriptors it keeps open."""

    def __init__(self, command: Command, *, log_dir: Path, env: Mapping[str, str], inherit: tuple[int, ...]) -> None:
        self.command = command
        self.log = log_dir / f"{command.name}.log"
        self._env = {**env, **command.env}
        self._inherit = inherit
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start; 0 before it."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it. Raises StackError when the program cannot be executed."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        parent, command = os.getpid(), self.command
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command.argv,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=self._inherit,
                    user=command.account,
                    group=command.account,
                    extra_groups=[] if command.account else None,
                    # Runs after the change of user, which would clear the death signal.
                    preexec_fn=lambda: _tie_to(parent, command.stop_signal),  # noqa: PLW1509
                )
            except OSError as error:
                raise StackError(f"{command.name} cannot be started: {error}.") from error

    def poll(self) -> int | None:
        """Its exit status (negative: the signal that ended it), or None while it runs."""
        return self._process.poll() if self._process else None

    def ask_to_stop(self) -> None:
        """Send its stop signal, if it still runs."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(self.command.stop_signal)

    def wait_stopped(self, seconds: float) -> bool:
        """Wait for its end, kill it after ``seconds``, and kill what it left behind. True: it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self.kill()
        return True

    def kill(self) -> None:
        """SIGKILL to the whole process group: also to the pool children of a worker that died."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log, indented."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 16_384))
            text = log.read().decode("utf-8", "replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])


def _tie_to(parent: int, death_signal: signal.Signals) -> None:
    """In the child before exec: end with the parent; hear SIGINT even when the parent was started with it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def wait_ready(child: Child, ready: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Ask ``ready`` until it says yes. Raises StackError when the child ends or the time is over."""
    deadline = time.monotonic() + seconds
    name, where = child.command.name, child.log
    while not ready():
        if (status := child.poll()) is not None:
            raise StackError(f"{name} ended at its start ({describe(status)}); see {where}.", detail=child.tail())
        if time.monotonic() > deadline:
            raise StackError(f"{name} is not ready after {seconds:.0f} s; see {where}.", detail=child.tail())
        time.sleep(0.05)


def stop_all(children: Iterable[Child]) -> list[str]:
    """Ask all to stop at once and wait for each. Returns the names of those that had to be killed."""
    asked = list(children)
    for child in asked:
        child.ask_to_stop()
    began = time.monotonic()
    return [
        child.command.name
        for child in asked
        if not child.wait_stopped(began + child.command.grace_seconds - time.monotonic())
    ]


def describe(status: int) -> str:
    """``exit status 3`` or ``killed by SIGKILL``."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class RestartPolicy:
    """0.5 s, doubled with each death within ``window`` seconds; ``limit`` deaths within it are too many."""

    def __init__(self, *, limit: int = 5, window: float = 60.0) -> None:
        self._limit, self._window = limit, window
        self._deaths: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Seconds to wait before the restart, or None: give up."""
        self._deaths.append(now)
        while self._deaths[0] <= now - self._window:
            self._deaths.popleft()
        if len(self._deaths) >= self._limit:
            return None
        return float(2 ** (len(self._deaths) - 2))


class Supervisor:
    """Watches children and restarts the dead ones. ``say`` gets one line for each death and each restart."""

    def __init__(self, children: Iterable[Child], *, say: Callable[[str], None]) -> None:
        self._children = [(child, RestartPolicy()) for child in children]
        self._due: dict[str, float] = {}
        self._say = say

    def step(self, now: float) -> None:
        """One look at every child. Raises StackError for one that keeps dying."""
        for child, policy in self._children:
            name = child.command.name
            if (due := self._due.get(name)) is not None:
                if now >= due:
                    del self._due[name]
                    child.start()
                    self._say(f"{name} restarted (pid {child.pid}).")
            elif (status := child.poll()) is not None:
                child.kill()
                self._note_death(child, policy, status, now)

    def _note_death(self, child: Child, policy: RestartPolicy, status: int, now: float) -> None:
        name = child.command.name
        delay = policy.died(now)
        if delay is None:
            sentence = f"{name} keeps dying (now: {describe(status)}), so everything is stopped; see {child.log}."
            raise StackError(sentence, detail=child.tail())
        self._say(f"{name} died ({describe(status)}); restarting it in {delay:g} s, see {child.log}.")
        self._due[name] = now + delay
