"""``wellhead``: every command is one module with ``register(app)``."""

from __future__ import annotations

import sys

import typer

from ops import (
    cli_backfill,
    cli_calibration,
    cli_doctor,
    cli_eval,
    cli_generations,
    cli_keys,
    cli_lookup,
    cli_map,
    cli_mcp,
    cli_parked,
    cli_recall,
    cli_report,
    cli_setup,
    cli_status,
    cli_sweep,
    cli_up,
)
from ops.cli_client import CliError
from ops.supervisor import StackError
from pipeline.errors import PipelineError

COMMANDS = (
    cli_up,
    cli_backfill,
    cli_lookup,
    cli_status,
    cli_sweep,
    cli_generations,
    cli_calibration,
    cli_report,
    cli_eval,
    cli_map,
    cli_mcp,
    cli_recall,
    cli_parked,
    cli_keys,
    cli_doctor,
    cli_setup,
)


def make_app() -> typer.Typer:
    """All commands."""
    app = typer.Typer(
        name="wellhead",
        help="Keeps an agent's knowledge fresh and tells the agent when it has searched enough.",
        no_args_is_help=True,
        add_completion=False,
        # A traceback is for developers; people get one sentence, see main().
        pretty_exceptions_enable=False,
    )
    for command in COMMANDS:
        command.register(app)
    return app


def main() -> None:
    """Exit status 0: complete. 1: something is parked, incomplete or wrong. 2: usage."""
    try:
        make_app()()
    except StackError as error:
        fail("\n".join(filter(None, [str(error), error.detail])), 1)
    except PipelineError as error:
        fail(str(error), 1)
    except CliError as error:
        fail(str(error), error.status)


def fail(sentence: str, status: int) -> None:
    """One sentence on standard error."""
    typer.echo(sentence, err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
