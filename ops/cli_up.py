"""``wellhead up``: the whole product on this machine, in the foreground."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from ops.cli_client import AsJson, DataDir, print_json, settings_for


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(up)


def up(
    demo: Annotated[bool, typer.Option("--demo", help="Load the demo documents and ask three questions.")] = False,
    demo_only: Annotated[bool, typer.Option("--demo-only", help="The same, then stop.")] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port of the API; 0: any free one.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Start everything that no URL is set for, and stay up until Ctrl-C."""
    from ops.up import up as run

    console = Console(stderr=as_json, soft_wrap=True)

    def on_ready(info: dict[str, Any]) -> int | None:
        came_out = _demo(info["api"], console) if demo or demo_only else True
        if as_json:
            print_json(info)
        else:
            _welcome(info, console)
        return (0 if came_out else 1) if demo_only else None

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    raise typer.Exit(run(settings_for(data_dir, api_port=port), say=say, on_ready=on_ready))


def _demo(api: str, console: Console) -> bool:
    from ops.demo_run import run_demo

    return run_demo(api, console)


def _welcome(info: dict[str, Any], console: Console) -> None:
    console.print()
    for name, url in (("API", info["api"]), ("Docs", info["docs"]), ("Flower", info["flower"])):
        console.print(f"{name:8} {url}", highlight=False)
    console.print(f"{'Data':8} {info['data_dir']}", highlight=False)
    console.print("Ready. Ctrl-C stops everything.", highlight=False)
