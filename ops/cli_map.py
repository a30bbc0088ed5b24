"""``wellhead map`` and ``wellhead domains``: what the planner is told, and the summaries behind it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, connected, print_json, settings_for


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(name="map")(show_map)
    domains = typer.Typer(help="The domains and their summaries.", no_args_is_help=True)
    domains.command(name="list")(list_domains)
    domains.command(name="refresh")(refresh_domains)
    app.add_typer(domains, name="domains")


def show_map(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """The knowledge map as a planner's prompt gets it: YAML, or JSON."""
    with connected(settings_for(data_dir)) as api:
        if as_json:
            print_json(api.get("/v1/knowledge-map", format="json"))
        else:
            typer.echo(api.checked(api.send("GET", "/v1/knowledge-map")).text, nl=False)


def list_domains(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every domain: its documents, who wrote its summary, and what still waits."""
    with connected(settings_for(data_dir)) as api:
        found = api.get("/v1/domains")
    if as_json:
        print_json(found)
        return
    table = Table("domain", "documents", "writer", "waiting changes", "description", "error", title="Domains")
    for each in found["domains"]:
        table.add_row(*_row(each))
    Console().print(table)


def _row(domain: dict[str, Any]) -> list[str]:
    return [
        domain["domain_id"],
        f"{domain['document_count']:,}",
        domain["writer"] or "-",
        f"{domain['changes']:,}",
        domain["description"] or "-",
        domain["last_error"] or "",
    ]


def refresh_domains(
    domain: Annotated[list[str] | None, typer.Argument(help="These; all without one.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Have domains summarised again; one whose documents say the same as before costs no call."""
    query = [("domain", name) for name in domain or []]
    with connected(settings_for(data_dir)) as api:
        done = api.checked(api.send("POST", "/v1/domains:refresh", params=query)).json()
    if as_json:
        print_json(done)
    else:
        typer.echo(f"{len(done['domains']):,} domains are due for a summary.")
