"""``wellhead parked``: what failed for good, and the two ways out of it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, connected, print_json, stack_settings

parked = typer.Typer(help="List, retry and drop what failed for good.", no_args_is_help=True)
Key = Annotated[str, typer.Argument(help="The document's key.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(parked, name="parked")


@parked.command(name="list")
def list_parked(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every parked document with its reason; exit status 1 when there is one."""
    with connected(stack_settings(data_dir)) as api:
        found = api.get("/v1/parked")["parked"]
    if as_json:
        print_json({"parked": found})
    elif not found:
        typer.echo("Nothing is parked.")
    else:
        table = Table("key", "version", "stage", "errors", "lost workers", "reason")
        for each in found:
            numbers = (str(each["errors"]), str(each["lapses"]))
            table.add_row(each["key"], str(each["version"]), each["stage"], *numbers, each["error"])
        Console().print(table)
    if found:
        raise typer.Exit(1)


@parked.command()
def retry(key: Key, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Give a parked document a fresh start."""
    with connected(stack_settings(data_dir)) as api:
        done = api.post("/v1/parked:retry", {"key": key})
    print_json(done) if as_json else typer.echo(f"{done['items']} items of {key} are pending again.")


@parked.command()
def drop(key: Key, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Give a parked version up; the one before goes on serving."""
    with connected(stack_settings(data_dir)) as api:
        done = api.post("/v1/parked:drop", {"key": key})
    print_json(done) if as_json else typer.echo(f"{done['items']} items of {key} were given up.")
