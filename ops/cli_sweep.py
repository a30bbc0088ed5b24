"""``wellhead sweep``: what is stale, how long it takes, and the start of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ops.cli_client import AsJson, CliError, DataDir, connected, print_json, settings_for
from ops.durations import in_words

PassageTokens = Annotated[
    int | None,
    typer.Option("--passage-tokens", min=32, max=8192, help="With --dry-run: ask about another passage size."),
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(sweep)


def sweep(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is stale and how long it would take.")
    ] = False,
    passage_tokens: PassageTokens = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Embed again what is stale by the settings of the server; also vectors that were dropped before are made again."""
    if passage_tokens is not None and not dry_run:
        raise CliError("--passage-tokens goes with --dry-run; to change it, set WELLHEAD_PASSAGE_TOKENS.", status=2)
    with connected(settings_for(data_dir)) as api:
        answer = api.post("/v1/sweep", {"dry_run": dry_run, "passage_tokens": passage_tokens})
    if as_json:
        print_json(answer)
    else:
        typer.echo(sentence(answer))


def sentence(answer: dict[str, Any]) -> str:
    """The answer in words."""
    name = answer["fingerprint"]
    if not answer["documents"]:
        words = f"Nothing is stale: all {answer['documents_total']:,} documents have vectors of {name}."
        return words + (_kept(answer) if answer["state"] == "kept" else "")
    took = "no rate was measured yet"
    if answer["seconds"] is not None:
        rate = f"{answer['tokens_per_s']:,.0f} tokens/s"
        took = f"at the measured {rate} that takes about {in_words(answer['seconds'])}"
    words = (
        f"{answer['documents']:,} of {answer['documents_total']:,} documents ({answer['tokens']:,} tokens) lack vectors"
        f" of {name}; {took}."
    )
    if answer["parked"]:
        words += f" {answer['parked']:,} of them are parked: 'wellhead parked list' says why."
    return words + _begun(answer)


def _begun(answer: dict[str, Any]) -> str:
    number = answer["generation"]
    return {
        "started": f" Generation {number} is being made now; lookups go on with the old vectors until it is complete.",
        "building": f" Generation {number} is being made already.",
        "kept": _kept(answer),
        "fresh": f" Generation {number} serves and is catching up.",
    }.get(answer["state"], "")


def _kept(answer: dict[str, Any]) -> str:
    number = answer["generation"]
    return f" Generation {number} served before and is kept: 'wellhead generations swap {number}' lets it serve again."
