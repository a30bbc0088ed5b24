"""``wellhead backfill``: files and directories into the running stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ops.backfill import Backfill, Manifest, Tally, read_all, text_of
from ops.cli_client import AsJson, CliError, DataDir, api_url, connected, print_json, stack_settings
from ops.estimating import counter
from pipeline.documents import Upload
from pipeline.limits import Limits
from pipeline.reading import Refused
from pipeline.settings import Settings
from pipeline.walking import walk


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(backfill)


def backfill(
    paths: Annotated[list[Path], typer.Argument(help="Files and directories.", exists=True)],
    domain: Annotated[str | None, typer.Option("--domain", help="Where neither file nor directory says one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how much it is and how long it takes.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is searchable.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what an earlier backfill of these paths sent and is gone from them.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Send documents and wait until they are searchable; what did not change costs nothing."""
    settings = stack_settings(data_dir)
    console = Console(stderr=True, soft_wrap=True)
    if dry_run:
        raise typer.Exit(_dry_run(settings, paths, domain, console, as_json=as_json))
    count, _ = counter(settings)
    with connected(settings) as api, _bars(console, paths) as bars:
        run = Backfill(api, count, bars)
        tally = run.run(read_all(paths, Limits.from_settings(settings), domain), wait=not no_wait)
        pruned = _prune(run, tally, Manifest(settings.data_dir, paths, api_url(settings)), console, wanted=prune)
    if as_json:
        print_json(tally.to_json())
    else:
        typer.echo(_summary(tally, pruned, waited=not no_wait))
    incomplete = tally.parked or tally.refused or tally.lost or pruned is None
    raise typer.Exit(1 if incomplete else 0)


def _prune(run: Backfill, tally: Tally, manifest: Manifest, console: Console, *, wanted: bool) -> int | None:
    """How many were deleted; None when it was not safe to."""
    before = manifest.read()
    if wanted and tally.refused:
        console.print(f"{len(tally.refused)} files were refused, so nothing is pruned.", highlight=False)
        wanted, pruned = False, None
    else:
        pruned = run.delete(sorted(before - run.keys)) if wanted else 0
    manifest.write(run.keys if wanted else before | run.keys)
    return pruned


def _summary(tally: Tally, pruned: int | None, *, waited: bool) -> str:
    parts = [f"{tally.documents:,} documents ({tally.unchanged:,} unchanged)"]
    if waited:
        parts.append(f"{tally.searchable:,} searchable")
    if tally.passages:
        rate = tally.tokens / max(tally.seconds, 0.001)
        parts.append(f"{tally.passages:,} passages, {tally.tokens:,} tokens, {rate:,.0f} tokens/s")
    for number, what in ((tally.parked, "parked"), (len(tally.refused), "refused"), (pruned, "pruned")):
        if number:
            parts.append(f"{number:,} {what}")
    return f"{'; '.join(parts)}; {tally.seconds:.1f} s."


def _dry_run(settings: Settings, paths: list[Path], domain: str | None, console: Console, *, as_json: bool) -> int:
    count, exact = counter(settings)
    files = sum(1 for _ in walk(paths))
    documents = tokens = 0
    refused: list[Refused] = []
    for found in read_all(paths, Limits.from_settings(settings), domain):
        if isinstance(found, Upload):
            documents += 1
            tokens += count([text_of(found)])[0]
        else:
            refused.append(found)
            console.print(f"{found.name}: {found.sentence}", highlight=False, markup=False)
    rate = _measured_rate(settings)
    seconds = round(tokens / rate, 1) if rate else None
    if as_json:
        answer = {"files": files, "documents": documents, "tokens": tokens, "exact": exact, "refused": len(refused)}
        print_json({**answer, "tokens_per_s": rate or None, "seconds": seconds})
    else:
        about = "" if exact else "about "
        takes = f"about {_duration(seconds)} at {rate:,.0f} tokens/s" if seconds is not None else "no rate measured yet"
        typer.echo(
            f"{files:,} files, {documents:,} documents, {about}{tokens:,} tokens, {len(refused)} refused: {takes}."
        )
    return 1 if refused else 0


def _measured_rate(settings: Settings) -> float:
    """Tokens a second of the newest batches; 0 where nothing runs or nothing was encoded yet."""
    try:
        with connected(settings) as api:
            return float(api.get("/v1/status")["encoding"]["measured_tokens_per_s"])
    except CliError:
        return 0.0


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _Bars:
    """Two bars: what is read and sent by documents, what is searchable by tokens."""

    def __init__(self, progress: Progress, files: int) -> None:
        self._progress = progress
        self._files = progress.add_task("Sent", total=files)
        self._tokens = progress.add_task("Searchable (tokens)", total=0)
        self._read, self._expected = 0, 0
        self._of = files

    def read(self, count: int) -> None:
        self._read += count
        # A file of JSON lines holds more documents than one.
        self._of = max(self._of, self._read)
        self._progress.update(self._files, completed=self._read, total=self._of)

    def expect(self, tokens: int) -> None:
        self._expected += tokens
        self._progress.update(self._tokens, total=self._expected)

    def searchable(self, tokens: int) -> None:
        self._progress.advance(self._tokens, tokens)

    def say(self, line: str) -> None:
        self._progress.console.print(line, highlight=False, markup=False)


@contextmanager
def _bars(console: Console, paths: list[Path]) -> Iterator[_Bars]:
    columns: tuple[Any, ...] = (
        TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, sum(1 for _ in walk(paths)))
