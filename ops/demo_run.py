"""Loads the demo documents into a running stack through its HTTP API and asks three questions of them.

``python -m ops.demo_run`` does so in a throw-away directory and ends with status 0 when all three come out.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ops.supervisor import StackError
from ops.up import up
from pipeline.limits import Limits
from pipeline.reading import Refused, read_file
from pipeline.settings import Settings
from pipeline.walking import walk

DEMO = Path(__file__).parent / "demo"
LONGEST_SECONDS = 600.0
SHOWN_LINES = 4
SHOWN_CHARACTERS = 2000
LEVELS = {"exact": {"PRECISE"}, "paraphrase": {"HIGHLY_RELEVANT", "REFERENCE"}}


def run_demo(api_url: str, console: Console) -> bool:
    """Upload ``ops/demo``, wait until it is searchable, look three things up.

    True: each question had the outcome that ``lookups.yaml`` expects. Raises StackError when a document cannot be
    made searchable, or when the API refuses or is gone.
    """
    lookups = yaml.safe_load((DEMO / "lookups.yaml").read_text("utf-8"))
    try:
        with httpx.Client(base_url=api_url, timeout=60.0, transport=httpx.HTTPTransport(retries=5)) as client:
            _load(client, demo_documents(), console)
            outcomes = [_look_up(client, lookup, console) for lookup in lookups]
    except httpx.HTTPStatusError as error:
        asked, answer = error.request, error.response
        sentence = f"{asked.method} {asked.url.path} answered {answer.status_code} to the demo."
        raise StackError(sentence, detail=answer.text[:SHOWN_CHARACTERS]) from error
    except httpx.TransportError as error:
        raise StackError(f"The API at {api_url} does not answer the demo any more ({error}).") from error
    return all(outcomes)


def demo_documents() -> list[dict[str, Any]]:
    """The demo files as the JSON of uploads, keyed by their path below ``ops/demo``."""
    documents = []
    for found in walk([DEMO]):
        for upload in read_file(found, Limits()):
            if isinstance(upload, Refused):
                raise StackError(f"The demo file {upload.name} cannot be loaded: {upload.sentence}.")
            documents.append({name: value for name, value in asdict(upload).items() if value})
    return documents


def _load(client: httpx.Client, documents: list[dict[str, Any]], console: Console) -> None:
    lines = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    headers = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
    answer = client.post("/v1/documents:batch", content=lines.encode(), headers=headers)
    summary = answer.raise_for_status().json()
    if summary["failed"]:
        problem = summary["problems"][0]
        raise StackError(f"The demo document {problem['key']} is refused: {problem['detail']}.")
    told = f"{summary['documents']} demo documents: {summary['changed']} to embed, {summary['unchanged']} unchanged."
    console.print(told, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("Demo documents searchable", total=len(documents))
        _wait_searchable(client, [str(document["key"]) for document in documents], lambda: progress.advance(bar))


def _wait_searchable(client: httpx.Client, keys: list[str], advance: Callable[[], None]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    for key in keys:
        while (state := _state(client, key)) != "searchable":
            if time.monotonic() > deadline:
                raise StackError(f"The demo document {key} is still {state} after {LONGEST_SECONDS:.0f} s.")
            time.sleep(0.2)
        advance()


def _state(client: httpx.Client, key: str) -> str:
    document = client.get(f"/v1/documents/{quote(key)}").raise_for_status().json()
    if document["state"] == "parked":
        raise StackError(f"The demo document {key} cannot be made searchable: {document['error']}.")
    return str(document["state"])


def _look_up(client: httpx.Client, lookup: dict[str, Any], console: Console) -> bool:
    answer = client.post("/v1/lookup", json={"query": lookup["query"]}).raise_for_status().json()
    console.print()
    console.print(f"[bold]?[/bold] {lookup['query']}", highlight=False)
    console.print(f"  [bold]{answer['relevance_level'] or 'nothing found'}[/bold] {answer['completeness_hint']}")
    if answer["found"]:
        primary = answer["primary"]
        console.print(f"  [bold]{primary['title']}[/bold] ({primary['key']})", highlight=False)
        for line in _first_lines(primary["content"]):
            console.print(f"    {line}", highlight=False, markup=False, overflow="ellipsis", no_wrap=True)
    else:
        console.print(f"  {answer['message']}", highlight=False, markup=False)
    met = as_expected(answer, lookup)
    if not met:
        console.print(f"  [red]Expected: {lookup['expect']} {lookup['key'] or ''}[/red]")
    return met


def _first_lines(content: str) -> list[str]:
    return [line for line in content.splitlines() if line.strip()][:SHOWN_LINES]


def as_expected(answer: dict[str, Any], lookup: dict[str, Any]) -> bool:
    """Whether the answer of ``POST /v1/lookup`` is what ``lookup`` (query, expect, key) asks for."""
    if lookup["expect"] == "nothing":
        return not answer["found"]
    known = answer["found"] and answer["relevance_level"] in LEVELS[lookup["expect"]]
    return bool(known and answer["primary"]["key"] == lookup["key"])


def main() -> int:
    """Start, load, ask, stop, in a directory that is removed afterwards. 0: all three came out as expected."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="wellhead-demo-") as directory:
        settings = Settings(data_dir=Path(directory), api_port=0, flower_port=0)
        try:
            return up(
                settings,
                say=lambda line: console.print(line, highlight=False, markup=False),
                on_ready=lambda info: 0 if run_demo(info["api"], console) else 1,
            )
        except StackError as error:
            console.print(f"{error}\n{error.detail}", highlight=False, markup=False)
            return 1


if __name__ == "__main__":
    sys.exit(main())
