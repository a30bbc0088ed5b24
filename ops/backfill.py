"""Files → the API in batches → wait until every document is searchable."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ops.cli_client import Api, CliError
from ops.estimating import Counter
from pipeline.documents import Upload, VersionText
from pipeline.limits import Limits
from pipeline.reading import Refused, read_file
from pipeline.walking import walk

BATCH_DOCUMENTS = 500
BATCH_BYTES = 4 * 1024 * 1024
STATES_AT_ONCE = 1000
# How long the API may be gone or refuse work before a backfill gives up: a restart, or a full queue on a slow machine.
PATIENCE_SECONDS = 1800.0
STALLED_SECONDS = 60.0
BUSY = (429, 503)


class Observer(Protocol):
    """What is told while it runs."""

    def read(self, count: int) -> None: ...
    def searchable(self, tokens: int) -> None: ...
    def expect(self, tokens: int) -> None: ...
    def say(self, line: str) -> None: ...


@dataclass
class Tally:
    """``documents`` were accepted, ``unchanged`` of them said nothing new; passages and tokens are of the others."""

    documents: int = 0
    unchanged: int = 0
    passages: int = 0
    tokens: int = 0
    parked: int = 0
    seconds: float = 0.0
    searchable: int = 0
    refused: list[Refused] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The document that ``--json`` prints."""
        names = ("documents", "unchanged", "passages", "tokens", "parked", "seconds", "searchable")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A document the API took: its version, whether it is new, and its tokens as counted here."""

    version: int
    changed: bool
    tokens: int


def read_all(paths: Iterable[Path], limits: Limits, domain: str | None) -> Iterator[Upload | Refused]:
    """Everything in the files at and below ``paths``, in order."""
    for found in walk(paths):
        yield from read_file(found, limits, domain=domain)


def text_of(upload: Upload) -> str:
    """The text that will be embedded, with its title."""
    body = VersionText(title=upload.title, body=upload.body, events=upload.events).body_text
    return f"{upload.title}\n{body}"


class Backfill:
    """One run against one API. ``wait``: until everything sent is searchable or parked."""

    def __init__(
        self, api: Api, count: Counter, observer: Observer, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._api = api
        self._count = count
        self._observer = observer
        self._pause = pause
        self._tally = Tally()
        self._sent: dict[str, Sent] = {}

    def run(self, uploads: Iterable[Upload | Refused], *, wait: bool) -> Tally:
        """Sends all, then waits. Raises CliError when the API is gone for good."""
        began = time.monotonic()
        for batch in self._batches(uploads):
            self._send(batch)
        if wait:
            self._wait()
        self._tally.seconds = round(time.monotonic() - began, 3)
        return self._tally

    @property
    def keys(self) -> set[str]:
        """What was sent and accepted."""
        return set(self._sent)

    def delete(self, keys: Iterable[str]) -> int:
        """Deletes documents; those already gone are no error. How many were there."""
        from urllib.parse import quote

        gone = 0
        for key in keys:
            response = self._patiently("DELETE", f"/v1/documents/{quote(key)}")
            if response.status_code != 404:
                self._api.checked(response)
                gone += 1
        return gone

    def _batches(self, uploads: Iterable[Upload | Refused]) -> Iterator[list[tuple[Upload, bytes]]]:
        batch: list[tuple[Upload, bytes]] = []
        size = 0
        for found in uploads:
            self._observer.read(1)
            if isinstance(found, Refused):
                self._refuse(found)
                continue
            line = json.dumps(upload_json(found), ensure_ascii=False).encode() + b"\n"
            if batch and (len(batch) >= BATCH_DOCUMENTS or size + len(line) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append((found, line))
            size += len(line)
        if batch:
            yield batch

    def _refuse(self, refused: Refused) -> None:
        self._tally.refused.append(refused)
        self._observer.say(f"{refused.name}: {refused.sentence}")

    def _send(self, batch: list[tuple[Upload, bytes]]) -> None:
        """A line the API could not store for now is sent again; the other lines stand."""
        while batch:
            content = b"".join(line for _, line in batch)
            headers = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
            response = self._api.checked(
                self._patiently("POST", "/v1/documents:batch", content=content, headers=headers)
            )
            again = []
            counts = self._count([text_of(upload) for upload, _ in batch])
            for (upload, line), tokens, outcome in zip(
                batch, counts, _outcomes(response.text, len(batch)), strict=True
            ):
                if outcome.get("status") in BUSY:
                    again.append((upload, line))
                else:
                    self._note(upload, tokens, outcome)
            if again:
                self._pause(5.0)
            batch = again

    def _note(self, upload: Upload, tokens: int, outcome: dict[str, Any]) -> None:
        if "version" not in outcome:
            self._refuse(Refused(name=upload.key, reason="invalid", sentence=str(outcome["detail"])))  # type: ignore[arg-type]
            return
        changed = outcome["state"] != "unchanged"
        self._tally.documents += 1
        self._tally.unchanged += not changed
        self._sent[upload.key] = Sent(version=outcome["version"], changed=changed, tokens=tokens)
        if changed:
            self._observer.expect(tokens)

    def _patiently(self, method: str, path: str, **options: Any) -> Any:
        """Waits as long as the API says it is busy: back-pressure and restarts are no failures."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                response = self._api.send(method, path, **options)
            except CliError:
                if time.monotonic() > deadline:
                    raise
                self._pause(2.0)
                continue
            if response.status_code not in BUSY or time.monotonic() > deadline:
                return response
            self._pause(float(response.headers.get("Retry-After", "5")))

    def _wait(self) -> None:
        waiting = dict(self._sent)
        moved, warned = time.monotonic(), False
        while waiting:
            settled = 0
            for keys in _slices(list(waiting), STATES_AT_ONCE):
                settled += self._settle(waiting, keys)
            if settled:
                moved = time.monotonic()
            elif not warned and time.monotonic() - moved > STALLED_SECONDS:
                warned = True
                self._observer.say("Nothing has become searchable for a minute: 'wellhead doctor' says what is wrong.")
            if waiting:
                self._pause(min(2.0, 0.1 + len(waiting) / 5000))

    def _settle(self, waiting: dict[str, Sent], keys: Sequence[str]) -> int:
        """Takes out of ``waiting`` what needs no more waiting; says how many."""
        answer = self._api.checked(self._patiently("POST", "/v1/documents:states", json={"keys": keys})).json()
        states = {each["key"]: each for each in answer["documents"]}
        settled = 0
        for key in keys:
            settled += self._settled(key, waiting[key], states.get(key))
            if self._done(waiting[key], states.get(key)):
                del waiting[key]
        return settled

    @staticmethod
    def _done(sent: Sent, state: dict[str, Any] | None) -> bool:
        if state is None or (state["live_version"] or 0) >= sent.version:
            return True
        return state["state"] in {"searchable", "parked", "deleted", "consumed"}

    def _settled(self, key: str, sent: Sent, state: dict[str, Any] | None) -> bool:
        if not self._done(sent, state):
            return False
        if sent.changed:
            self._observer.searchable(sent.tokens)
        if state is not None and ((state["live_version"] or 0) >= sent.version or state["state"] == "searchable"):
            self._tally.searchable += 1
            self._tally.passages += state["passages"] if sent.changed else 0
            self._tally.tokens += state["tokens"] if sent.changed else 0
        elif state is not None and state["state"] == "parked":
            self._tally.parked += 1
            self._observer.say(f"{key}: parked; 'wellhead doctor' and GET /v1/documents/{key} say why")
        else:
            self._tally.lost.append(key)
        return True


def upload_json(upload: Upload) -> dict[str, Any]:
    """An upload as one line of a batch; what is empty is left out."""
    fields = {name: value for name, value in asdict(upload).items() if value not in (None, "", (), {})}
    for event in fields.get("events", ()):
        event["at"] = event["at"].isoformat()
        event["blocks"] = [{k: v for k, v in block.items() if v is not None} for block in event["blocks"]]
    return fields


def _outcomes(text: str, expected: int) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    if len(found) != expected:
        raise CliError(f"The API answered {len(found)} of {expected} documents; run the backfill again.")
    return found


def _slices(keys: list[str], size: int) -> Iterator[list[str]]:
    return (keys[at : at + size] for at in range(0, len(keys), size))


class Manifest:
    """What earlier backfills of the same paths sent, so that ``--prune`` deletes nobody else's documents."""

    def __init__(self, data_dir: Path, paths: Sequence[Path], api: str) -> None:
        self._roots = sorted(str(path.resolve()) for path in paths)
        name = hashlib.sha256(json.dumps([api, self._roots]).encode()).hexdigest()[:32]
        self._file = data_dir / "backfills" / f"{name}.json"

    def read(self) -> set[str]:
        """The keys; empty when these paths were never sent from here."""
        try:
            return set(json.loads(self._file.read_text("utf-8"))["keys"])
        except FileNotFoundError:
            return set()

    def write(self, keys: set[str]) -> None:
        """Replaces them."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"paths": self._roots, "keys": sorted(keys)}, ensure_ascii=False), "utf-8")
        fresh.replace(self._file)
