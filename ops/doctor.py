"""Asks every part the question that matters about it; each finding says what is wrong and how to put it right."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import httpx
import numpy as np

from ops.stack import find
from pipeline.adapters.probes import redis_policy, schema_version
from pipeline.documents import Lane
from pipeline.fingerprint import fingerprint
from pipeline.ports import Role
from pipeline.settings import Settings
from pipeline.wiring import Parts

OK, WARNING, WRONG = "ok", "warning", "wrong"
LITE_PASSAGES = 50_000
STALE_SECONDS = 60.0
LITTLE_DISK = 2 * 1024**3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """``state``: ok, warning or wrong. ``fix``: what to do, empty when ok."""

    part: str
    state: str
    detail: str
    fix: str = ""


Check: TypeAlias = Callable[[Settings, Parts], Iterator[Finding]]


def examine(settings: Settings, parts: Parts) -> Iterator[Finding]:
    """Every finding, as it is made. A check that cannot be done is a finding itself."""
    for part, check in CHECKS.items():
        variable = NEEDS.get(part)
        if variable and not getattr(settings, variable):
            fix = "set it, or start a stack with 'wellhead up'"
            yield Finding(part=part, state=WRONG, detail=f"WELLHEAD_{variable.upper()} is not set", fix=fix)
            continue
        try:
            yield from check(settings, parts)
        except Exception as error:
            # Whatever it was, the next part is still asked.
            first = str(error).strip().split("\n", 1)[0] or type(error).__name__
            yield Finding(part=part, state=WRONG, detail=first, fix=FIXES[part])


def _stack(settings: Settings, _parts: Parts) -> Iterator[Finding]:
    info = find(settings.data_dir)
    where = info["api"] if info else settings.api_url
    if not where:
        yield Finding(
            part="api",
            state=WRONG,
            detail=f"no stack runs in {settings.data_dir}",
            fix="start it with 'wellhead up', or set WELLHEAD_API_URL",
        )
        return
    answer = httpx.get(f"{where}/readyz", timeout=10)
    bad = {name: state for name, state in answer.json()["parts"].items() if state != "ok"}
    detail = f"{where} is {answer.json()['status']}"
    if bad:
        detail += f"; {', '.join(f'{name} {state}' for name, state in bad.items())}"
    state = OK if not bad else WARNING if answer.is_success else WRONG
    yield Finding(part="api", state=state, detail=detail, fix="see the findings below" if bad else "")


def _postgresql(_settings: Settings, parts: Parts) -> Iterator[Finding]:
    at, head = schema_version(parts.engine), newest_migration()
    if at == head:
        yield Finding(part="postgresql", state=OK, detail=f"answers, schema {at}")
    else:
        known = f"schema {at}" if at else "no schema"
        yield Finding(
            part="postgresql", state=WRONG, detail=f"{known}, this version needs {head}", fix="run 'wellhead migrate'"
        )


def newest_migration() -> str:
    """The revision that the code needs."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    import migrations

    config = Config()
    config.set_main_option("script_location", str(Path(str(migrations.__file__)).parent))
    return str(ScriptDirectory.from_config(config).get_current_head())


def _broker(settings: Settings, _parts: Parts) -> Iterator[Finding]:
    policy = redis_policy(settings.broker_url, part="broker")
    if policy in {"", "noeviction"}:
        yield Finding(part="broker", state=OK, detail=f"answers, maxmemory-policy {policy or 'not told'}")
    else:
        fix = "set maxmemory-policy to noeviction: an evicted wake-up costs a sweep's wait"
        yield Finding(part="broker", state=WARNING, detail=f"maxmemory-policy is {policy}", fix=fix)


def _action_memory(settings: Settings, _parts: Parts) -> Iterator[Finding]:
    policy = redis_policy(settings.memory_url, part="action_memory")
    if policy == "noeviction":
        fix = "set maxmemory and the maxmemory-policy volatile-lru, so that old sessions make room for new ones"
        yield Finding(part="action_memory", state=WARNING, detail="maxmemory-policy is noeviction", fix=fix)
    else:
        yield Finding(part="action_memory", state=OK, detail=f"answers, maxmemory-policy {policy or 'not told'}")


def _milvus(_settings: Settings, parts: Parts) -> Iterator[Finding]:
    admin = parts.vectors.admin()
    info = admin.info()
    admin.probe_metric()
    name = "Milvus Lite" if info.lite else "Milvus"
    yield Finding(part="milvus", state=OK, detail=f"{name} {info.version} answers, and measures as expected")
    for problem in info.problems:
        yield Finding(part="milvus", state=WARNING, detail=problem, fix="run Milvus 2.5 or newer")
    passages = parts.status.passages_served()
    if info.lite and passages > LITE_PASSAGES:
        yield Finding(
            part="milvus",
            state=WARNING,
            detail=f"{passages:,} passages on Milvus Lite, which is made for {LITE_PASSAGES:,}",
            fix="run a Milvus server and set WELLHEAD_MILVUS_URI; everything is embedded again by itself",
        )


def _encoder(settings: Settings, parts: Parts) -> Iterator[Finding]:
    if settings.embedder == "onnx":
        yield _files(settings.data_dir / "models" / settings.embed_model)
    embedder = parts.embedder
    dense = embedder.encode(embedder.tokenize(["连接池耗尽 connection pool"], Role.PASSAGE)).dense
    norm = float(np.linalg.norm(dense[0]))
    if dense.shape != (1, embedder.space.dimension) or not abs(norm - 1) < 0.01:
        fix = "unpack it again: 'wellhead model', or check WELLHEAD_EMBED_MODEL"
        yield Finding(part="encoder", state=WRONG, detail=f"a test vector has norm {norm:.3f}", fix=fix)
    else:
        yield Finding(part="encoder", state=OK, detail=f"{embedder.space.name} makes unit vectors")


def _files(directory: Path) -> Finding:
    about = json.loads((directory / "model.json").read_text("utf-8"))
    for name, expected in about.get("files", {}).items():
        with (directory / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                fix = "run 'wellhead model', then restart the workers and the API"
                return Finding(part="encoder", state=WRONG, detail=f"{directory / name} is damaged", fix=fix)
    return Finding(part="encoder", state=OK, detail=f"the files in {directory} are whole")


def _generation(_settings: Settings, parts: Parts) -> Iterator[Finding]:
    serving = parts.generations.serving()
    if serving is None:
        fix = "upload a document while a worker runs: the first one makes the generation"
        yield Finding(part="generation", state=WARNING, detail="none serves yet", fix=fix)
        return
    wanted = fingerprint(parts.embedder.space, parts.rule)
    if serving.fingerprint == wanted:
        yield Finding(part="generation", state=OK, detail=f"{serving.fingerprint} serves")
    else:
        fix = "wait for the swap, or set the model back; 'wellhead status' shows how far it is"
        detail = f"{serving.fingerprint} serves, the settings say {wanted}"
        yield Finding(part="generation", state=WARNING, detail=detail, fix=fix)
    if serving.emptied_at is not None:
        detail, fix = "its collection was lost and is being filled again", "wait; lookups are degraded until then"
        yield Finding(part="generation", state=WARNING, detail=detail, fix=fix)


def _workers(_settings: Settings, parts: Parts) -> Iterator[Finding]:
    """By what happens, not by asking the workers: one that hangs may still answer a ping."""
    encoded = parts.status.throughput(STALE_SECONDS).passages
    for waiting in parts.status.pending():
        lane = waiting.lane.name.lower()
        old = waiting.oldest_seconds > STALE_SECONDS
        if old and (encoded == 0 or waiting.lane is Lane.LIVE):
            yield Finding(
                part="workers",
                state=WARNING if encoded else WRONG,
                detail=f"the oldest upload of the lane {lane} waits for {waiting.oldest_seconds:.0f} s,"
                f" and {encoded:,} passages were encoded in the last minute",
                fix="see the logs of the workers gpu and prepare; restart them; add workers when they are busy",
            )
        else:
            detail = f"lane {lane}: {waiting.passages:,} passages wait, the oldest for {waiting.oldest_seconds:.0f} s"
            yield Finding(part="workers", state=OK, detail=detail)
    parked = parts.status.work()["parked"]
    if parked:
        fix = "GET /v1/documents?state=parked names them, GET /v1/documents/{key} says why; upload them again"
        yield Finding(part="workers", state=WARNING, detail=f"{parked:,} passages are parked", fix=fix)


def _disk(settings: Settings, _parts: Parts) -> Iterator[Finding]:
    place = settings.data_dir if settings.data_dir.exists() else Path()
    free = shutil.disk_usage(place).free
    detail = f"{free / 1024**3:.1f} GiB free at {place.resolve()}"
    short = free < LITTLE_DISK
    fix = "make room: databases stop when the disk is full" if short else ""
    yield Finding(part="disk", state=WARNING if short else OK, detail=detail, fix=fix)


CHECKS: dict[str, Check] = {
    "api": _stack,
    "postgresql": _postgresql,
    "broker": _broker,
    "action_memory": _action_memory,
    "milvus": _milvus,
    "encoder": _encoder,
    "generation": _generation,
    "workers": _workers,
    "disk": _disk,
}

# The setting without which a part cannot be asked.
NEEDS = {
    "postgresql": "database_url",
    "broker": "broker_url",
    "action_memory": "memory_url",
    "milvus": "milvus_uri",
    "generation": "database_url",
    "workers": "database_url",
}

FIXES = {
    "api": "see logs/api.log in the data directory, or WELLHEAD_API_URL",
    "postgresql": "start it, or correct WELLHEAD_DATABASE_URL",
    "broker": "start it, or correct WELLHEAD_BROKER_URL",
    "action_memory": "start it, or correct WELLHEAD_MEMORY_URL",
    "milvus": "start it, or correct WELLHEAD_MILVUS_URI",
    "encoder": "run 'wellhead model', or correct WELLHEAD_EMBEDDER and WELLHEAD_EMBED_MODEL",
    "generation": "PostgreSQL and the encoder have to work first",
    "workers": "PostgreSQL has to work first",
    "disk": "check the data directory",
}
