"""``wellhead recall``: one question to the memory of the running stack."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ops.cli_client import AsJson, DataDir, connected, print_json, settings_for


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(recall)


def recall(
    query: Annotated[str, typer.Argument(help="The question, in any language.")],
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=10, help="How many episodes at most.")] = 3,
    domain: Annotated[str | None, typer.Option("--domain", help="Search in this domain only.")] = None,
    user_id: Annotated[str | None, typer.Option("--user", help="Only episodes in which this user takes part.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session that asks.")] = None,
    preview: Annotated[bool, typer.Option("--preview", help="The top three with their first lines only.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Recall past episodes, with their events at their original times. Nothing is taken out."""
    asked: dict[str, Any] = {
        "query": query,
        "top_k": top_k,
        "domain": domain,
        "user_id": user_id,
        "session_id": session,
        "preview": preview,
    }
    with connected(settings_for(data_dir)) as api:
        answer = api.post("/v1/recall", {name: value for name, value in asked.items() if value is not None})
    if as_json:
        print_json(answer)
    else:
        typer.echo(answer["text"])
