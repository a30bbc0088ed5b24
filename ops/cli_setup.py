"""``wellhead migrate`` and ``wellhead model``: what ``up`` does by itself, for when parts run elsewhere."""

from __future__ import annotations

import typer

from ops.cli_client import DataDir, database_settings, settings_for


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(migrate)
    app.command()(model)


def migrate(data_dir: DataDir = None) -> None:
    """Bring the database to the newest schema."""
    from ops.stack import migrate as run

    run(database_settings(data_dir).database_url)
    typer.echo("The database is at the newest schema.")


def model(data_dir: DataDir = None) -> None:
    """Unpack the bundled encoder into the data directory, where it is missing or broken."""
    settings = settings_for(data_dir)
    if settings.embedder != "onnx":
        typer.echo(f"WELLHEAD_EMBEDDER is {settings.embedder}: nothing to unpack.")
        return
    from ops.bundled_model import ensure

    typer.echo(f"The encoder is in {ensure(settings.data_dir / 'models', settings.embed_model)}.")
