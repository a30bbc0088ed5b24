"""``wellhead calibration``: what relevance means in each generation, how well it was judged, and going back."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, CliError, DataDir, connected, print_json, stack_settings

calibration = typer.Typer(help="Maps from scores to relevance: show, fit, choose.", no_args_is_help=True)
GenerationOption = Annotated[int | None, typer.Option("--generation", help="The serving one if none is named.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(calibration, name="calibration")


@calibration.command()
def show(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every fitted map with its figures; the one in use is marked."""
    with connected(stack_settings(data_dir)) as api:
        found = api.get("/v1/calibration")
    if as_json:
        print_json(found)
        return
    console = Console()
    console.print(f"In use: {found['in_use']}" + (", a new one is being fitted" if found["fitting"] else ""))
    if found["calibrations"]:
        console.print(_table(found["calibrations"]))


@calibration.command()
def fit(generation: GenerationOption = None, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Fit a map anew from the documents and the feedback; the one in use stays until then."""
    _change({"action": "fit", "generation": generation}, as_json, data_dir, "A worker fits generation {generation}.")


@calibration.command()
def use(
    number: Annotated[str, typer.Argument(metavar="ID", help="As 'calibration show' lists it, or 'shipped'.")],
    generation: GenerationOption = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Go by this map from now on."""
    if number != "shipped" and not number.isdigit():
        raise CliError(f"{number!r} is neither a number nor 'shipped'.", status=2)
    asked = {"action": "use", "generation": generation, "id": int(number) if number.isdigit() else number}
    _change(asked, as_json, data_dir, "Generation {generation} goes by calibration {in_use}.")


def _change(asked: dict[str, Any], as_json: bool, data_dir: DataDir, sentence: str) -> None:
    with connected(stack_settings(data_dir)) as api:
        done = api.post("/v1/calibration", {k: v for k, v in asked.items() if v is not None})
    print_json(done) if as_json else typer.echo(sentence.format(**done))


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table("", "id", "generation", "version", "documents", "labels", "feedback", "level", "precision", "coverage", "false accepts")  # fmt: skip
    for each in found:
        figures = each["figures"]
        head = ["*" if each["in_use"] else "", str(each["id"]), str(each["generation"]), str(each["version"])]
        head += [str(each["documents"]), str(figures.get("labels", "-")), str(figures.get("feedback", 0))]
        for level, values in figures.get("levels", {}).items():
            shares = [_percent(values[name]) for name in ("precision", "coverage", "false_accepts")]
            table.add_row(*head, level, *shares)
            head = [""] * len(head)
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
