"""A stack for benchmarks: real services in a temporary directory, and the parts that drive them in this process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.bundled_model import ensure
from ops.stack import Stack, migrate
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


def corpus(*folders: str) -> list[Path]:
    """The Markdown files of some corpora; exits with a sentence where they are not there."""
    files = [f for folder in folders for f in sorted((CORPORA / folder).rglob("*.md"))]
    if not files:
        raise SystemExit(f"no corpora at {CORPORA}: this benchmark needs them")
    return files
