"""``wellhead lookup``: one question to the running stack."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ops.cli_client import AsJson, DataDir, connected, print_json, settings_for


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(lookup)


def lookup(
    query: Annotated[str, typer.Argument(help="The question, in any language.")],
    session: Annotated[str | None, typer.Option("--session", help="What was handed out in it is not repeated.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Search in this domain only.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Look something up and say how good the answer is."""
    asked = {"query": query, "session_id": session, "domain": domain}
    with connected(settings_for(data_dir)) as api:
        answer = api.post("/v1/lookup", {name: value for name, value in asked.items() if value is not None})
    if as_json:
        print_json(answer)
        return
    for line in shown(answer):
        typer.echo(line)


def shown(answer: dict[str, Any]) -> list[str]:
    """The answer for a person: the level, what to do next, then each document with its place."""
    lines = [f"{answer['relevance_level'] or 'Nothing found'}. {answer['completeness_hint']}"]
    if answer["message"]:
        lines.append(answer["message"])
    if answer["degraded"]:
        lines.append(f"Degraded: {', '.join(answer['degraded'])}.")
    for found in filter(None, [answer["primary"], *answer["supplement"]]):
        first, last = found["citation"]["lines"]
        lines += ["", f"{found['title']} ({found['key']}, lines {first}-{last})", "", found["content"]]
    lines += [f"Already handed out: {each['title']} ({each['key']})" for each in answer["deduped"]]
    return lines
