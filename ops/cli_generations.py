"""``wellhead generations``: which vectors serve, which are being made, and the ways to change that by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, connected, print_json, settings_for
from ops.durations import in_words

Number = Annotated[int, typer.Argument(metavar="ID", help="As 'generations list' shows it.")]
Accept = Annotated[
    bool, typer.Option("--accept-missing", help="Even though documents that are served now would vanish or grow older.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    generations = typer.Typer(help="The sets of vectors: which serves, which is being made.", no_args_is_help=True)
    generations.command(name="list")(list_generations)
    generations.command(name="swap")(swap)
    generations.command(name="rollback")(rollback)
    generations.command(name="drop")(drop)
    app.add_typer(generations, name="generations")


def list_generations(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every generation: how complete it is, how fast it grows, what holds it."""
    with connected(settings_for(data_dir)) as api:
        found = api.get("/v1/generations")
    if as_json:
        print_json(found)
        return
    table = Table("id", "fingerprint", "status", "documents", "tokens", "parked", "tokens/s", "left", "recall check")
    for each in found["generations"]:
        table.add_row(*map(str, _row(each)))
    console = Console()
    console.print(table)
    for each in found["generations"]:
        if each["held"]:
            console.print(f"Generation {each['id']} is held: {each['held']}", markup=False)


def swap(number: Number, accept_missing: Accept = False, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Let a generation serve now, whatever its recall check says."""
    _change(f"/v1/generations/{number}:swap", {"accept_missing": accept_missing}, as_json, data_dir, "serves")


def rollback(accept_missing: Accept = False, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Let the generation that served before serve again; nothing uploaded since is lost."""
    _change("/v1/generations:rollback", {"accept_missing": accept_missing}, as_json, data_dir, "serves again")


def drop(number: Number, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Give up a generation that is being made, or end the soak of one that served."""
    _change(f"/v1/generations/{number}:drop", None, as_json, data_dir, "goes, once nothing can use it any more")


def _change(path: str, body: Any, as_json: bool, data_dir: DataDir, became: str) -> None:
    with connected(settings_for(data_dir)) as api:
        changed = api.post(path, body)
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"Generation {changed['id']} ({changed['fingerprint']}) {became}.")


def _row(each: dict[str, Any]) -> tuple[Any, ...]:
    check = each["recall_check"]
    found = "-"
    if check is not None and check["probes"]:
        found = f"{check['self_retrieval']:.2f}"
        if check["serving_self_retrieval"] is not None:
            found += f" (serving {check['serving_self_retrieval']:.2f})"
        if check["overlap"] is not None:
            found += f", overlap {check['overlap']:.2f}"
    return (
        each["id"],
        each["fingerprint"],
        each["status"],
        f"{each['documents_done']:,} of {each['documents_eligible']:,} ({each['coverage']:.1%})",
        f"{each['tokens_done']:,} of {each['tokens_total']:,}",
        f"{each['parked']:,}",
        f"{each['tokens_per_s']:,.0f}",
        "-" if each["eta_s"] is None else in_words(each["eta_s"]),
        found,
    )
