"""What every command shares: its options, the way to a running stack, and errors of one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from pydantic import ValidationError

from ops.stack import SERVICE_SETTINGS, find
from pipeline.settings import Settings

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Where the stack of this machine lives (default ./.wellhead).")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]


class CliError(Exception):
    """Said in one sentence; ``status`` is the exit status."""

    def __init__(self, sentence: str, *, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


def settings_for(data_dir: Path | None, **given: Any) -> Settings:
    """The settings of the environment and these. Raises CliError (2) naming the variable that is wrong."""
    if data_dir is not None:
        given["data_dir"] = data_dir
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = error.errors()[0]
        name = "_".join(str(part) for part in wrong["loc"]).upper()
        raise CliError(f"WELLHEAD_{name} is wrong: {wrong['msg']}.", status=2) from error


def stack_settings(data_dir: Path | None) -> Settings:
    """The same with the services of the stack that runs in the data directory, where no URL is set."""
    settings = settings_for(data_dir)
    info = find(settings.data_dir)
    if info is None:
        return settings
    services = {name: info["services"][name] for name in SERVICE_SETTINGS if not getattr(settings, name)}
    return settings.model_copy(update={**services, "data_dir": Path(info["data_dir"])})


def database_settings(data_dir: Path | None) -> Settings:
    """Settings that name a database. Raises CliError."""
    settings = stack_settings(data_dir)
    if not settings.database_url:
        raise CliError(
            f"No stack runs in {settings.data_dir}: start one with 'wellhead up', or set WELLHEAD_DATABASE_URL."
        )
    return settings


def api_url(settings: Settings) -> str:
    """WELLHEAD_API_URL, or that of the stack in the data directory. Raises CliError."""
    if settings.api_url:
        return settings.api_url.rstrip("/")
    info = find(settings.data_dir)
    if info is None:
        raise CliError(f"No stack runs in {settings.data_dir}: start one with 'wellhead up', or set WELLHEAD_API_URL.")
    return str(info["api"])


class Api:
    """The API of a running stack. Every error becomes a CliError; 429 and 503 are left to the caller."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON answer to a GET."""
        return self.checked(self.send("GET", path, params=parameters)).json()

    def post(self, path: str, body: Any) -> Any:
        """The JSON answer to a POST of JSON."""
        return self.checked(self.send("POST", path, json=body)).json()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, whatever its status. Raises CliError when the API cannot be reached."""
        try:
            return self._client.request(method, path, **options)
        except httpx.TransportError as error:
            raise CliError(f"The API at {self._client.base_url} does not answer ({type(error).__name__}).") from error

    @staticmethod
    def checked(response: httpx.Response) -> httpx.Response:
        """The response, unless it is an error: then its ``detail`` is the sentence."""
        if response.is_success:
            return response
        try:
            detail = response.json()["detail"]
        except (json.JSONDecodeError, KeyError, TypeError):
            detail = response.text[:200]
        hint = "; set WELLHEAD_API_KEY" if response.status_code == httpx.codes.UNAUTHORIZED else ""
        raise CliError(f"The API refuses ({response.status_code}): {detail}{hint}.")


@contextmanager
def connected(settings: Settings) -> Iterator[Api]:
    """A client of the running API, with the key of WELLHEAD_API_KEY."""
    key = settings.api_key.get_secret_value()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.HTTPTransport(retries=3)
    with httpx.Client(base_url=api_url(settings), headers=headers, timeout=120.0, transport=transport) as client:
        yield Api(client)


def print_json(value: Any) -> None:
    """The one document that ``--json`` promises."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
