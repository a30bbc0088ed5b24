"""``wellhead status``: what is there, what waits, how fast it goes."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, connected, print_json, settings_for


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(status)


def status(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Documents by state, waiting work by lane, speed, and the state of every part."""
    with connected(settings_for(data_dir)) as api:
        answer, generations = api.get("/v1/status"), api.get("/v1/generations")["generations"]
    if as_json:
        print_json({**answer, "generations": generations})
        return
    console = Console()
    console.print(_table("Documents", ("state", "number"), list(answer["documents"].items())))
    console.print(_lanes(answer))
    console.print(_generations(generations))
    console.print(_table("Parts", ("part", "state", "detail"), [_part(*p) for p in answer["parts"].items()]))
    counted = [(name, value) for name, value in answer["counters"].items() if value]
    if counted:
        console.print(_table("Counted so far", ("event", "number"), counted))


def _lanes(answer: dict[str, Any]) -> Table:
    searchable = answer["upload_to_searchable"]
    rows = [
        (
            lane,
            f"{waiting['documents']:,}",
            f"{waiting['passages']:,}",
            f"{waiting['oldest_seconds']:.0f} s" if waiting["oldest_seconds"] else "-",
            f"{searchable[lane]['p50']:.2f} / {searchable[lane]['p95']:.2f} s" if lane in searchable else "-",
        )
        for lane, waiting in answer["pending"].items()
    ]
    encoding = answer["encoding"]
    title = (
        f"Waiting ({answer['claimed']:,} passages with a worker, {answer['parked']:,} parked, "
        f"{encoding['tokens_per_s']:,.0f} tokens/s)"
    )
    return _table(title, ("lane", "documents", "passages", "oldest", "searchable after p50 / p95"), rows)


def _generations(generations: list[dict[str, Any]]) -> Table:
    rows = [
        (g["id"], g["fingerprint"], g["status"], f"{g['coverage']:.1%}", f"{g['documents_done']:,}", f"{g['parked']:,}")
        for g in generations
    ]
    return _table("Generations", ("id", "fingerprint", "status", "coverage", "documents", "parked"), rows)


def _part(name: str, part: dict[str, Any]) -> tuple[str, str, str]:
    return name, part["state"], part["detail"] or ""


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table
