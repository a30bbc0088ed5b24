"""``wellhead report``: how the tools are used and how good the answers were."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, connected, print_json, stack_settings

TITLES = {
    "relevance_levels": "Lookups by relevance level",
    "dedup_reasons": "Lookups by reason of withholding",
    "similarities": "Lookups by similarity of the nearest passage",
    "tools": "Use by tool and level",
}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(report)


def report(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Count answers by level, by reason of withholding, by similarity, by tool."""
    with connected(stack_settings(data_dir)) as api:
        found = api.get("/v1/report")
    if as_json:
        print_json(found)
        return
    console = Console()
    for name, rows in found.items():
        if not rows:
            console.print(f"{TITLES[name]}: nothing yet.")
            continue
        table = Table(*rows[0], title=TITLES[name], title_justify="left")
        for row in rows:
            table.add_row(*("none" if value is None else str(value) for value in row.values()))
        console.print(table)
