"""``wellhead keys``: API keys. They are made and revoked in the database, so the first one needs no key."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, DataDir, database_settings, print_json

if TYPE_CHECKING:
    from pipeline.adapters.ledger.keys import KeyLedger

keys = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(keys, name="keys")


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose documents it opens.")] = "default",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write, admin; default read and write.")
    ] = None,
    if_none: Annotated[bool, typer.Option("--if-none", help="Do nothing when there is an active key already.")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="Write the key there, for its owner only.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Make a key and show it once: only its hash is stored."""
    ledger = _ledger(data_dir)
    if if_none and ledger.any_active():
        if as_json:
            print_json(None)
        return
    secret, made = ledger.create(tenant, name, scope or ["read", "write"])
    if file is not None:
        _write_private(file, secret)
    if as_json:
        print_json({"key": secret if file is None else str(file), **asdict(made)})
    else:
        typer.echo(secret if file is None else f"The key is in {file}.")


@keys.command(name="list")
def list_keys(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every key by its beginning, revoked ones too."""
    found = _ledger(data_dir).all()
    if as_json:
        print_json([asdict(key) for key in found])
        return
    table = Table("prefix", "name", "tenant", "scopes", "made", "revoked")
    for key in found:
        made, revoked = f"{key.created_at:%Y-%m-%d %H:%M}", f"{key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else ""
        table.add_row(key.prefix, key.name, key.tenant, " ".join(key.scopes), made, revoked)
    Console().print(table)


@keys.command()
def revoke(
    prefix: Annotated[str, typer.Argument(help="The key, or its beginning as 'keys list' shows it.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """End a key: within a second it opens nothing any more."""
    ended = _ledger(data_dir).revoke(prefix)
    if as_json:
        print_json(asdict(ended))
    else:
        typer.echo(f"{ended.prefix}… ({ended.name}) is revoked.")


def _ledger(data_dir: Path | None) -> KeyLedger:
    # The database library takes longer to import than most commands take to run.
    from pipeline.adapters.ledger.connection import make_engine
    from pipeline.adapters.ledger.keys import KeyLedger

    return KeyLedger(make_engine(database_settings(data_dir).database_url, 1))


def _write_private(file: Path, secret: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(secret + "\n")
