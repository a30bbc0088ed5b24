"""A stack for benchmarks: real services in a temporary directory, and the parts that drive them in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from ops.bundled_model import ensure
from ops.stack import Stack, migrate
from pipeline.breaker import Breaker
from pipeline.documents import Lane, Upload
from pipeline.generations import in_order
from pipeline.prepare import prepare
from pipeline.receive import receive_many
from pipeline.settings import Settings
from pipeline.wiring import Parts, build

ROOT = Path(__file__).resolve().parents[2]
CORPORA = ROOT.parent / "shared" / "corpora"


@contextmanager
def stage(**overrides: object) -> Iterator[tuple[Stack, Parts]]:
    """PostgreSQL, Valkey and Milvus Lite, migrated, with the bundled model; removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="wellhead-bench-"))
    directory.chmod(0o755)
    cache = ROOT / ".test-services" / "models"
    ensure(cache, "multilingual-e5-small")
    (directory / "models").symlink_to(cache)
    try:
        with Stack(Settings(data_dir=directory)) as stack:
            migrate(stack.url("database_url"))
            os.environ.update(stack.environment())
            urls = {n: stack.url(n) for n in ("database_url", "broker_url", "memory_url", "milvus_uri")}
            yield stack, build(Settings(data_dir=directory, **{**urls, **overrides}))  # type: ignore[arg-type]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def scripted_llm(latency: float) -> Iterator[tuple[str, httpx.Client]]:
    """The base URL of an OpenAI-compatible server that answers after so many seconds, and a client to ask about it."""
    port_file = Path(tempfile.mkdtemp()) / "port"
    server = subprocess.Popen([sys.executable, "-m", "tests.llm_server", str(port_file)])
    try:
        while not port_file.exists():
            if server.poll() is not None:
                raise SystemExit("the scripted endpoint did not start")
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port_file.read_text()}"
        control = httpx.Client(base_url=url, timeout=60)
        control.post("/script", json={"script": [], "latency": latency})
        yield f"{url}/v1", control
    finally:
        server.kill()


def make_searchable(parts: Parts, uploads: Sequence[Upload]) -> int:
    """Receives, cuts and embeds them in this process; returns the passages written."""
    parts.ensure_generation()
    list(receive_many(parts.documents, "default", uploads, Lane.BACKFILL))
    prepare(parts.preparing, parts.generations, parts.tokenizer_for, parts.prepare_limits, lambda: True)
    return parts.drain(Breaker()).run(in_order(parts.generations.active()), lambda: True)


def corpus(*folders: str) -> list[Path]:
    """The Markdown files of some corpora; exits with a sentence where they are not there."""
    files = [f for folder in folders for f in sorted((CORPORA / folder).rglob("*.md"))]
    if not files:
        raise SystemExit(f"no corpora at {CORPORA}: this benchmark needs them")
    return files
