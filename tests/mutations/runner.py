"""A copy of the sources in which one promise at a time is broken, to see that the test which guards it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("pipeline", "workers", "api", "ops", "migrations", "tests", "pyproject.toml")
FAILED, PASSED = 1, 0


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """``old``, which occurs exactly once in ``file``, becomes ``new``; then ``test`` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str

    def stale(self, root: Path = ROOT) -> str | None:
        """Why this mutation does not fit the sources any more; None when it does."""
        path, test_file = root / self.file, root / self.test.split("::")[0]
        if not path.is_file():
            return f"{self.file} does not exist"
        found = path.read_text().count(self.old)
        if found != 1:
            return f"its old text occurs {found} times in {self.file}, not once: write down the new text"
        function = self.test.split("::")[-1].split("[")[0]
        # A contract's tests are written once and inherited where they run.
        written = [test_file, *root.glob("tests/contracts*.py")]
        if not test_file.is_file() or not any(f"def {function}(" in f.read_text() for f in written):
            return f"there is no test {self.test}"
        return None


def load(directory: Path = Path(__file__).parent) -> list[Mutation]:
    """The entries of every list in the directory, in order."""
    return [
        Mutation(**entry) for file in sorted(directory.glob("*.yaml")) for entry in yaml.safe_load(file.read_text())
    ]


class Copy:
    """The sources in a directory of their own. One test at a time, in a process of its own."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        # Sources change within a second: compiled files would be taken for fresh.
        self._environment = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"}
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, directory / name)

    def run(self, test: str) -> subprocess.CompletedProcess[str]:
        """One test; return code 0 passed, 1 failed, anything else did not run."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", test, "-q", "-x", "-p", "no:cacheprovider", "-m", "", "--timeout", "120"],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def run_mutated(self, mutation: Mutation) -> subprocess.CompletedProcess[str]:
        """The mutation's test against the mutated sources, which are whole again afterwards."""
        path = self._directory / mutation.file
        source = path.read_text()
        path.write_text(source.replace(mutation.old, mutation.new))
        try:
            return self.run(mutation.test)
        finally:
            path.write_text(source)
