"""The services of one machine and the process that watches them: real servers, stand-ins for Wellhead's own parts."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from ops import up as up_module
from ops.services import MilvusLite, free_ports
from ops.stack import Stack, StackError, find, publish
from ops.supervisor import Child, Command, RestartPolicy, Supervisor, stop_all
from pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ("database_url", "broker_url", "memory_url")
STANDS_IN = Path(__file__).with_name("stands_in_up.py")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that PostgreSQL's account can reach when the tests run as root; pytest's own is closed to it."""
    directory = Path(tempfile.mkdtemp(prefix="wellhead-stack-"))
    yield directory
    shutil.rmtree(directory)


def eventually(holds: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Wait for a true value. The limit is generous: it says that it never came, not how fast it was."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return value


def query(url: str, statement: str) -> Any:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


def processes_under(data_dir: Path) -> list[str]:
    """Command lines of living processes that name the directory, carry it in their environment or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            text += os.fsencode((process / "cwd").readlink())  # Valkey overwrites the other two
        except OSError:
            continue
        if str(data_dir).encode() in text:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_all_four_services_answer_and_keep_their_data_over_a_restart(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir)
    with Stack(settings) as stack:
        assert set(stack.urls) == {
            f"WELLHEAD_{name}" for name in ("DATABASE_URL", "BROKER_URL", "MEMORY_URL", "MILVUS_URI")
        }
        assert len(set(stack.urls.values())) == 4
        query(stack.url("database_url"), "CREATE TABLE kept (n int)")
        for name in ("broker_url", "memory_url"):
            redis.Redis.from_url(stack.url(name)).set("kept", name)
        milvus = MilvusLite(directory=data_dir / "milvus", port=int(stack.url("milvus_uri").rpartition(":")[2]))
        assert milvus.ready()
    assert not processes_under(data_dir)
    with Stack(settings) as stack:
        assert query(stack.url("database_url"), "SELECT count(*) FROM kept") == [(0,)]
        for name in ("broker_url", "memory_url"):
            assert redis.Redis.from_url(stack.url(name)).get("kept") == name.encode()


def test_the_servers_are_set_up_for_what_they_hold(data_dir: Path) -> None:
    with Stack(Settings(data_dir=data_dir), only=SCRATCH) as stack:
        database = stack.url("database_url")
        assert query(database, "SHOW server_version_num")[0][0].startswith("18")
        assert query(database, "SHOW fsync") == [("on",)]
        assert query(database, "SHOW synchronous_commit") == [("on",)]
        assert query(database, "SHOW server_encoding") == [("UTF8",)]
        broker, memory = (redis.Redis.from_url(stack.url(name)) for name in ("broker_url", "memory_url"))
        assert broker.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert broker.config_get("appendonly")["appendonly"] == "yes"
        assert memory.config_get("maxmemory-policy")["maxmemory-policy"] == "volatile-lru"
        assert memory.config_get("maxmemory")["maxmemory"] == str(64 * 1024 * 1024)
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(database.replace(database.split(":")[2].split("@")[0], "guess"), "SELECT 1")


def test_a_service_whose_url_is_set_is_not_started(data_dir: Path, broker_url: str) -> None:
    with Stack(Settings(data_dir=data_dir, broker_url=broker_url), only=SCRATCH) as stack:
        assert set(stack.children) == {"postgres", "valkey-memory"}
        assert stack.environment()["WELLHEAD_BROKER_URL"] == broker_url


def test_children_get_the_settings_in_force(data_dir: Path, broker_url: str) -> None:
    settings = Settings(data_dir=data_dir, broker_url=broker_url, passage_tokens=77, flower_basic_auth="me:secret")  # type: ignore[arg-type]
    with Stack(settings, only=("broker_url",)) as stack:
        environment = stack.environment()
        assert environment["WELLHEAD_PASSAGE_TOKENS"] == "77"
        assert environment["WELLHEAD_FLOWER_BASIC_AUTH"] == "me:secret"
        assert environment["WELLHEAD_DATA_DIR"] == str(data_dir)


def test_a_data_directory_in_use_is_refused_with_the_pid(data_dir: Path) -> None:
    with Stack(Settings(data_dir=data_dir), only=("broker_url",)):
        with pytest.raises(StackError, match=rf"{data_dir} is in use by a running stack \(pid {os.getpid()}\)"):
            Stack(Settings(data_dir=data_dir), only=("broker_url",)).start()
        assert (data_dir / "logs" / "valkey-broker.log").read_text().count("Server initialized") == 1


def test_a_data_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        StackError, match=r"cannot be written \(Not a directory\): choose another directory with --data"
    ):
        Stack(Settings(data_dir=tmp_path / "file" / "data")).start()


def test_a_missing_permission_is_one_sentence(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir()
    data_dir.chmod(0o755)
    closed.chmod(0o555)
    me = os.geteuid()
    if me == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        with pytest.raises(StackError, match=r"closed/data cannot be written \(Permission denied\)"):
            Stack(Settings(data_dir=closed / "data")).start()
    finally:
        os.seteuid(me)


def test_data_of_another_major_version_is_refused(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir()
    (data_dir / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(StackError, match="holds data of PostgreSQL 15 and the installed server is 18"):
        Stack(Settings(data_dir=data_dir), only=SCRATCH).start()
    assert not processes_under(data_dir)


def test_root_names_the_directory_that_keeps_postgresql_out(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs an account of its own for PostgreSQL")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    mode_before = closed.stat().st_mode
    tmp_path.chmod(0o711)
    with pytest.raises(StackError, match=r"cannot enter \S+: allow it with 'chmod o\+x \S+'"):
        Stack(Settings(data_dir=closed / "data"), only=("database_url",)).start()
    assert closed.stat().st_mode == mode_before


def test_a_service_that_ends_at_its_start_shows_the_end_of_its_log(data_dir: Path) -> None:
    (data_dir / "milvus").write_text("not a directory")
    with pytest.raises(StackError, match=r"milvus ended at its start \(exit status 1\)") as caught:
        Stack(Settings(data_dir=data_dir), only=("milvus_uri",)).start()
    assert "FileExistsError" in caught.value.detail or "NotADirectoryError" in caught.value.detail


def test_stack_json_is_private_and_found_only_while_its_process_lives(data_dir: Path) -> None:
    with Stack(Settings(data_dir=data_dir), only=("broker_url",)) as stack:
        assert find(data_dir) is None
        info = publish(stack, api="http://127.0.0.1:1", flower="http://127.0.0.1:2")
        assert find(data_dir) == info
        assert info["services"]["broker_url"] == stack.url("broker_url")
        assert (data_dir / "stack.json").stat().st_mode & 0o077 == 0
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        (data_dir / "stack.json").write_text(json.dumps({**info, "pid": gone.pid}))
        assert find(data_dir) is None
        publish(stack, api="http://127.0.0.1:1", flower="http://127.0.0.1:2")
    assert (data_dir / "stack.json").exists()
    assert find(data_dir) is None, "the number may be alive, but nobody holds the lock"


def test_a_free_port_is_free_and_a_taken_one_names_its_holder(data_dir: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        settings = Settings(data_dir=data_dir, api_port=port, flower_port=free_ports(1)[0])
        with pytest.raises(
            StackError, match=rf"Port {port} \(WELLHEAD_API_PORT\) is already taken by .+\(pid {os.getpid()}\)"
        ):
            up_module.up(settings, say=print)
    assert not list(data_dir.iterdir())


def test_deaths_delay_the_restart_more_and_more_until_it_is_given_up() -> None:
    policy = RestartPolicy(limit=5, window=60.0)
    assert [policy.died(now) for now in (0.0, 1.0, 3.0, 7.0)] == [0.5, 1.0, 2.0, 4.0]
    assert policy.died(61.5) == 2.0
    assert policy.died(62.0) == 4.0
    assert policy.died(62.5) is None


def child(data_dir: Path, code: str, *, name: str = "part", grace_seconds: float = 30.0) -> Child:
    command = Command(name=name, argv=(sys.executable, "-c", code), grace_seconds=grace_seconds)
    return Child(command, log_dir=data_dir, env=dict(os.environ), inherit=())


def test_a_dead_child_is_restarted_and_one_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    part, said = child(tmp_path, "print('no luck'); raise SystemExit(3)"), list[str]()
    part.start()
    supervisor = Supervisor([part], say=said.append)

    def run() -> None:
        for now in range(600):
            eventually(lambda: part.poll() is not None, "the part ends")
            supervisor.step(now / 10)

    with pytest.raises(
        StackError, match=r"part keeps dying \(now: exit status 3\), so everything is stopped"
    ) as caught:
        run()
    assert "no luck" in caught.value.detail
    assert sum("restarting it in" in line for line in said) == 4
    assert sum("restarted (pid" in line for line in said) == 4


def test_a_child_that_does_not_listen_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(inner.pid, flush=True); time.sleep(600)"
    )
    part = child(tmp_path, code, grace_seconds=0.2)
    part.start()
    inner = int(eventually(part.tail, "the inner process is known"))
    assert stop_all([part]) == ["part"]
    assert part.poll() == -signal.SIGKILL
    eventually(
        lambda: not Path(f"/proc/{inner}/cmdline").exists() or not Path(f"/proc/{inner}/cmdline").read_bytes(),
        "the inner one ends",
    )


class Up:
    """``up`` in a process of its own, with stand-ins for the API and the workers."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "up.out"
        argv = [sys.executable, str(STANDS_IN), str(data_dir), *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)

    def ready(self) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            assert self.process.poll() is None, self.log.read_text()
            return find(self.data_dir)

        info: dict[str, Any] = eventually(found, "the stack is ready")
        return info

    def end(self) -> int:
        try:
            return self.process.wait(90)
        finally:
            self.process.kill()


@pytest.fixture
def start_up(data_dir: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        started.append(Up(data_dir, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
    eventually(lambda: not processes_under(data_dir), "everything has ended")


@pytest.mark.parametrize("ask", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_workers_then_api_then_services_and_leaves_nothing(
    data_dir: Path, start_up: Callable[..., Up], ask: signal.Signals
) -> None:
    running = start_up()
    info = running.ready()
    assert info["pid"] == running.process.pid
    assert info["docs"] == f"{info['api']}/docs"
    query(info["services"]["database_url"], "SELECT 1")
    # Beat and Flower start when the API is ready, and a process that hears no signal yet cannot say in which order.
    up = data_dir / "order.up"
    eventually(lambda: up.exists() and len(up.read_text().split()) == 4, "every part listens")
    running.process.send_signal(ask)
    assert running.end() == 0, running.log.read_text()
    assert not processes_under(data_dir)
    assert not (data_dir / "stack.json").exists()
    order = (data_dir / "order").read_text().split()
    assert set(order[:4]) == {"worker-gpu", "worker-light", "beat", "flower"}
    assert order[4:] == ["api"]
    assert "database system is shut down" in (data_dir / "logs" / "postgres.log").read_text()


def test_parts_of_a_killed_supervisor_end_and_the_next_one_starts(data_dir: Path, start_up: Callable[..., Up]) -> None:
    killed = start_up()
    killed.ready()
    killed.process.kill()
    killed.process.wait()
    again = start_up()
    assert again.ready()["pid"] == again.process.pid
    again.process.terminate()
    assert again.end() == 0, again.log.read_text()


def test_a_killed_broker_comes_back_at_the_same_place_with_its_data(
    data_dir: Path, start_up: Callable[..., Up]
) -> None:
    running = start_up()
    url = running.ready()["services"]["broker_url"]
    with redis.Redis.from_url(url) as client:
        client.set("message", "kept")
        client.waitaof(1, 0, 0)
        os.kill(int(str(client.info("server")["process_id"])), signal.SIGKILL)

    def kept() -> bool:
        try:
            with redis.Redis.from_url(url) as client:
                return bool(client.get("message") == b"kept")
        except redis.RedisError:
            return False

    eventually(kept, "the broker answers again")
    eventually(lambda: "valkey-broker restarted" in running.log.read_text(), "the restart is told")
    assert "valkey-broker died (killed by SIGKILL); restarting it in 0.5 s" in running.log.read_text()


def test_a_part_that_keeps_dying_stops_everything_with_status_1(data_dir: Path, start_up: Callable[..., Up]) -> None:
    running = start_up("--dying")
    assert running.end() == 1
    assert "beat keeps dying (now: exit status 7), so everything is stopped" in running.log.read_text()
    assert not processes_under(data_dir)
    assert not (data_dir / "stack.json").exists()


def test_what_runs_when_ready_can_end_the_stack_with_its_status(data_dir: Path, start_up: Callable[..., Up]) -> None:
    running = start_up("--done")
    assert running.end() == 5, running.log.read_text()
    assert not processes_under(data_dir)
