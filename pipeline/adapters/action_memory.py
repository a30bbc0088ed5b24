"""Action memory in Redis or Valkey: one session is a handful of keys in one hash slot, every step one Lua script."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote_from_bytes

import numpy as np
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline.action_memory import (
    ANSWERED,
    Begun,
    Bounds,
    DedupReason,
    Handed,
    Marked,
    Question,
    SeenDocument,
    Selection,
    Session,
    SessionView,
    Status,
    Withheld,
    without_memory,
)
from pipeline.adapters import action_memory_scripts as scripts
from pipeline.errors import InfrastructureDown

_log = logging.getLogger(__name__)
_PART = "action_memory"
_POLL_SECONDS = 0.02
_T = TypeVar("_T")


class Gate:
    """After a failure one caller a ``pause`` tries again; all others are turned away at once."""

    def __init__(self, pause: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._closed_until: float | None = None

    def admits(self) -> bool:
        """May this caller try? Whoever is admitted while the store is down keeps the others out for a pause."""
        with self._lock:
            if self._closed_until is None:
                return True
            if self._clock() < self._closed_until:
                return False
            self._closed_until = self._clock() + self._pause
            return True

    def failed(self) -> bool:
        """Closes the gate; True when it was open until now."""
        with self._lock:
            was_open = self._closed_until is None
            self._closed_until = self._clock() + self._pause
            return was_open

    def succeeded(self) -> None:
        """Opens the gate."""
        with self._lock:
            self._closed_until = None


class RedisConnection:
    """The client, the scripts and the gate. Every call is bounded by ``timeout`` seconds and never repeated."""

    def __init__(self, url: str, timeout: float) -> None:
        # No handshake and no retry: each of them would add a timeout to a lookup that waits on a frozen server.
        self.client: redis.Redis = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            lib_name=None,
            lib_version=None,
        )
        self._gate = Gate()
        self._scripts = {
            name: self.client.register_script(getattr(scripts, name)) for name in ("BEGIN", "MARK", "FINISH", "CLEAR")
        }

    def script(self, name: str, keys: Sequence[bytes], args: Sequence[str | bytes | int]) -> Any:
        """Runs one script. Raises InfrastructureDown when the server does not answer or refuses."""
        return self.call(lambda: self._scripts[name](keys=list(keys), args=list(args)))

    def call(self, work: Callable[[], _T]) -> _T:
        """Runs one exchange with the server; raises InfrastructureDown."""
        if not self._gate.admits():
            raise InfrastructureDown("action memory does not answer", part=_PART, retry_after=1.0)
        try:
            result = work()
        except (redis.RedisError, OSError) as error:
            if self._gate.failed():
                _log.warning("action memory is unavailable: %s", error)
            raise InfrastructureDown(f"action memory does not answer: {error}", part=_PART, retry_after=1.0) from error
        self._gate.succeeded()
        return result


class RedisActionMemory:
    """The lookup's side: never raises because the store is down. Thread-safe; nothing connects before it is used."""

    def __init__(self, url: str, *, bounds: Bounds | None = None, timeout: float = 0.05) -> None:
        self._bounds = bounds or Bounds()
        self._connection = RedisConnection(url, timeout)

    def begin(self, session: Session, request: str = "") -> Begun:
        """Reads the session; waits while the same request runs elsewhere, at most two leases."""
        owner = uuid.uuid4().hex if request else ""
        give_up = time.monotonic() + 2 * self._bounds.lease
        try:
            while (raw := self._begin_once(session, request, owner))[0] == b"busy" and time.monotonic() < give_up:
                time.sleep(_POLL_SECONDS)
        except InfrastructureDown:
            return Begun(status=Status.UNAVAILABLE)
        if raw[0] == b"answered":
            return Begun(status=Status.OK, request=request, answer=_text(raw[1]))
        if raw[0] == b"busy":
            return Begun(status=Status.OK, request=request)
        domains, answered, _ = _domains(raw[2])
        return Begun(
            status=Status.OK,
            request=request,
            owner=owner,
            retried=bool(raw[3]),
            questions=tuple(_unpacked(q) for q in raw[1]),
            domains=domains,
            answered=answered,
        )

    def _begin_once(self, session: Session, request: str, owner: str) -> list[Any]:
        b = self._bounds
        args = (_ms(b.ttl), request, owner, _ms(b.lease), _ms(b.replay))
        result: list[Any] = self._connection.script("BEGIN", _keys(session, request), args)
        return result

    def mark_retrieved(self, session: Session, selection: Selection, begun: Begun) -> Marked:
        """Chooses and marks in one script; while the store is down, the best as if nothing had been seen."""
        if begun.status is not Status.OK:
            return without_memory(selection, begun.status)
        payload = _encoded(_payload(selection, begun, self._bounds))
        try:
            raw = self._connection.script("MARK", _keys(session, begun.request), [payload])
        except InfrastructureDown:
            return without_memory(selection, Status.UNAVAILABLE)
        return _marked(json.loads(_text(raw)), selection)

    def finish(self, session: Session, begun: Begun, answer: str | None) -> Status:
        """Stores the answer under the request, or gives the request up."""
        if not begun.owner or begun.status is not Status.OK:
            return begun.status
        args = (begun.owner, _bytes(answer or ""), _ms(self._bounds.replay))
        try:
            self._connection.script("FINISH", _keys(session, begun.request), args)
        except InfrastructureDown:
            return Status.UNAVAILABLE
        return Status.OK

    def seen(self, session: Session, domain: str | None = None) -> tuple[SeenDocument, ...]:
        """What was handed out (in a domain), oldest first; empty while the store is down."""
        try:
            view = self.records().view(session)
        except InfrastructureDown:
            return ()
        return tuple(d for d in (view.documents if view else ()) if domain in {None, d.domain})

    def records(self) -> RedisSessionRecords:
        """Reading and clearing, over the same connections."""
        return RedisSessionRecords(self._connection)


class RedisSessionRecords:
    """The side for people. Reading does not prolong a session's life. Raises InfrastructureDown."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def is_doc_retrieved(self, session: Session, key: str, version: int | None = None) -> bool:
        """Was this document (in this version or a newer one) handed out?"""
        raw: Any = self._connection.call(lambda: self._connection.client.hget(_key(session, "documents"), _bytes(key)))
        return raw is not None and (version is None or json.loads(_text(raw))["v"] >= version)

    def is_domain_retrieved(self, session: Session, domain: str) -> bool:
        """Was anything of this domain handed out?"""
        return domain in self.get_retrieved_domains(session)

    def get_retrieved_domains(self, session: Session) -> tuple[str, ...]:
        """In the order of their first time."""
        raw: Any = self._connection.call(lambda: self._connection.client.hgetall(_key(session, "domains")))
        return _domains([part for pair in raw.items() for part in pair])[0]

    def view(self, session: Session) -> SessionView | None:
        """Everything remembered; None when the session is unknown."""
        pipe = self._connection.client.pipeline(transaction=True)
        pipe.hgetall(_key(session, "documents"))
        pipe.hgetall(_key(session, "domains"))
        pipe.lrange(_key(session, "questions"), 0, -1)
        documents, fields, questions = self._connection.call(pipe.execute)
        if not documents and not fields:
            return None
        domains, answered, empties = _domains([part for pair in fields.items() for part in pair])
        records = sorted(((_text(k), json.loads(_text(v))) for k, v in documents.items()), key=lambda r: r[1]["n"])
        return SessionView(
            documents=tuple(_seen(key, record) for key, record in records),
            questions=tuple(_unpacked(q) for q in questions),
            domains=domains,
            answered=answered,
            empties=empties,
        )

    def clear_session(self, session: Session) -> bool:
        """Forgets the session and its stored answers. False when there was nothing to forget."""
        return bool(self._connection.script("CLEAR", _keys(session, ""), []))


def _key(session: Session, part: str) -> bytes:
    # Percent-encoded, so that no tenant and session can spell another pair; braces keep a session in one slot.
    tenant, name = (quote_from_bytes(_bytes(p), safe="") for p in (session.tenant, session.session_id))
    return f"wellhead:memory:{{{tenant}:{name}}}:{part}".encode()


def _keys(session: Session, request: str) -> list[bytes]:
    names = ("documents", "domains", "questions", "requests", f"request:{request}")
    return [_key(session, name) for name in names]


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _encoded(value: Mapping[str, Any]) -> bytes:
    return _bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _payload(selection: Selection, begun: Begun, bounds: Bounds) -> dict[str, Any]:
    question = selection.question
    return {
        "ranked": [
            {"k": o.key, "t": o.title, "d": o.domain, "v": o.version, "p": _list(o.passages), "c": _list(o.neighbours)}
            for o in selection.ranked
        ],
        "limit": selection.limit,
        "domain": selection.domain or "",
        "refetch": sorted(selection.refetch),
        "hard": selection.hard,
        "complete": selection.complete,
        "answered": question.level in ANSWERED,
        "question": _packed(question),
        "token": begun.request,
        "ttl": _ms(bounds.ttl),
        "replay": _ms(bounds.replay),
        "documents": bounds.documents,
        "passages": bounds.passages,
        "questions": bounds.queries,
        "domains": bounds.domains,
    }


def _list(passages: tuple[int, ...] | None) -> str:
    return "*" if passages is None else ",".join(map(str, passages))


def _ordinals(text: str) -> tuple[int, ...] | None:
    return None if text == "*" else tuple(int(n) for n in text.split(",") if n)


def _packed(question: Question) -> str:
    vector = "" if question.vector is None else base64.b64encode(question.vector.astype("<f2").tobytes()).decode()
    fields = {"q": question.query, "s": question.space, "v": vector, "l": question.level, "d": question.domain}
    return json.dumps({**fields, "k": question.documents}, separators=(",", ":"))


def _unpacked(raw: bytes) -> Question:
    fields = json.loads(raw)
    vector = np.frombuffer(base64.b64decode(fields["v"]), "<f2").astype(np.float32) if fields["v"] else None
    return Question(
        query=fields["q"],
        space=fields["s"],
        vector=vector,
        level=fields["l"],
        domain=fields["d"],
        documents=tuple(fields["k"]),
    )


def _marked(raw: Mapping[str, Any], selection: Selection) -> Marked:
    ranked = selection.ranked
    # Lua has one kind of table: an empty list comes back as an empty object.
    handed = [(ranked[i - 1], passages, again) for i, passages, again in raw["handed"] or ()]
    withheld = [(ranked[i - 1], DedupReason(reason)) for i, reason in raw["withheld"] or ()]
    return Marked(
        status=Status.OK,
        handed=tuple(
            Handed(key=o.key, version=o.version, passages=_ordinals(passages), refetched=again)
            for o, passages, again in handed
        ),
        withheld=tuple(Withheld(key=o.key, title=o.title, domain=o.domain, reason=why) for o, why in withheld),
        reason=DedupReason(raw["reason"]) if "reason" in raw else None,
        empties=raw["empties"],
        domains=_domains([_bytes(part) for part in raw["domains"]])[0],
    )


def _domains(flat: Sequence[bytes]) -> tuple[tuple[str, ...], frozenset[str], dict[str, int]]:
    fields = {_text(name): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    retrieved = sorted((order, name[2:]) for name, order in fields.items() if name.startswith("r:"))
    answered = frozenset(name[2:] for name in fields if name.startswith("a:"))
    return tuple(name for _, name in retrieved), answered, {n[2:]: c for n, c in fields.items() if n.startswith("e:")}


def _seen(key: str, record: Mapping[str, Any]) -> SeenDocument:
    return SeenDocument(
        key=key,
        title=record["t"],
        domain=record["d"],
        version=record["v"],
        passages=_ordinals(record["p"]),
        refetched=record["f"],
    )
