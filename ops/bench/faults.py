"""``make faults``: every fault on real processes, again and again under load, and a table of what became of the documents.

    python -m ops.bench.faults [pytest arguments]

``ROUNDS`` (10): kills within one test under load; ``WELLHEAD_FAULTS_EACH`` (3): fresh runs of every fault.

Exit status: pytest's. A row is written when a fault's check was reached, so a fault that never settled has none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROUNDS, EACH = "10", "3"
COUNTED = (
    "injected",
    "documents",
    "parked",
    "lost",
    "missing",
    "duplicated",
    "wrong",
    "recomputed",
    "fenced",
    "lapsed",
)


def read(file: Path) -> list[dict[str, Any]]:
    """The reports, with lists counted."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [{k: len(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows]


def merged(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a fault, its rounds added up; the recovery is the slowest one's."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(row["fault"], {"fault": row["fault"], "recovery_seconds": 0.0})
        for name in COUNTED:
            known[name] = known.get(name, 0) + row[name]
        known["recovery_seconds"] = max(known["recovery_seconds"], row["recovery_seconds"])
    return list(found.values())


def table(rows: list[dict[str, Any]]) -> Table:
    """What a person reads; the last line is the sum."""
    names = ("fault", *COUNTED, "recovery_seconds")
    made = Table(title="Faults", show_footer=bool(rows))
    total = {name: sum(row[name] for row in rows) for name in COUNTED}
    slowest = max((row["recovery_seconds"] for row in rows), default=0.0)
    footers = {"fault": "all", "recovery_seconds": f"{slowest:.1f}", **{k: str(v) for k, v in total.items()}}
    for name in names:
        justify = "left" if name == "fault" else "right"
        made.add_column(name.replace("recovery_seconds", "recovery s"), footer=footers[name], justify=justify)
    for row in rows:
        made.add_row(*(f"{row[n]:.1f}" if n == "recovery_seconds" else str(row[n]) for n in names))
    return made


def main(arguments: list[str]) -> int:
    """Runs the fault tests and prints the table, also when some failed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.jsonl"
        environment = {
            "ROUNDS": ROUNDS,
            "WELLHEAD_FAULTS_EACH": EACH,
            **os.environ,
            "WELLHEAD_FAULTS_REPORT": str(report),
        }
        argv = [sys.executable, "-m", "pytest", "tests/faults", "-m", "", "--timeout", "1800", *arguments]
        status = subprocess.run(argv, env=environment, check=False).returncode
        Console(width=160).print(table(merged(read(report))))
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
