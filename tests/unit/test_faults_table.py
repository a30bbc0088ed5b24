"""The table of ``make faults`` adds rounds up and hides nothing."""

from __future__ import annotations

import json

from rich.console import Console

from ops.bench.faults import COUNTED, merged, read, table


def row(**fields):
    return {"fault": "kill", "recovery_seconds": 1.0, **dict.fromkeys(COUNTED, 0), **fields}


def test_rounds_are_added_up_and_lists_counted(tmp_path):
    file = tmp_path / "report.jsonl"
    lines = [
        row(lost=["a", "b"], injected=3, recovery_seconds=2.5),
        row(lost=[], injected=4),
        row(fault="freeze", fenced=2),
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in lines))
    kill, freeze = merged(read(file))
    assert (kill["injected"], kill["lost"], kill["recovery_seconds"]) == (7, 2, 2.5)
    assert (freeze["fault"], freeze["fenced"], freeze["lost"]) == ("freeze", 2, 0)


def test_the_last_line_is_the_sum():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    console.print(table([row(lost=2), row(fault="freeze", lost=3, recovery_seconds=9)]))
    last = next(line for line in console.export_text().splitlines() if "all" in line)
    assert " 5 " in last and "9.0" in last


def test_without_a_report_there_is_an_empty_table(tmp_path):
    assert merged(read(tmp_path / "none")) == []
    assert table([]).row_count == 0
