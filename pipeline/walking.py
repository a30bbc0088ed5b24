"""Finds the files to read under the paths a person named."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

READABLE = frozenset({".md", ".markdown", ".txt", ".html", ".htm", ".jsonl", ".ndjson", ".json"})
_SKIPPED = frozenset({"CVS", "_darcs"})


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file to read. ``name`` is its path below the given one, with ``/``, in NFC: the key of its document.

    ``clash`` is another file found before under the same name. What cannot be read is found, too: reading
    it says why.
    """

    path: Path
    name: str
    domain: str = "default"
    clash: Path | None = None


def walk(paths: Iterable[Path]) -> Iterator[FoundFile]:
    """The readable files at or below ``paths``, sorted by name within each; each directory is entered once.

    Symbolic links are followed, except to a directory that lies below a given path anyway. Hidden files and
    version control directories are left out unless named themselves.
    """
    given = [Path(path) for path in paths]
    roots = {path.resolve() for path in given if path.is_dir()}
    seen: dict[str, Path] = {}
    for root in given:
        found = _below(root, "", roots, set()) if root.is_dir() else iter([(root, root.name)])
        for path, spelled in found:
            name = unicodedata.normalize("NFC", spelled)
            domain = name.split("/", 1)[0] if "/" in name else "default"
            yield FoundFile(path=path, name=name, domain=domain, clash=seen.get(name))
            seen.setdefault(name, path)


def _below(folder: Path, prefix: str, roots: set[Path], entered: set[Path]) -> Iterator[tuple[Path, str]]:
    entered.add(folder.resolve())
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError:
        # Found as if it were a file: reading it fails and reports the reason.
        yield folder, prefix.rstrip("/") or folder.name
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        name = f"{prefix}{entry.name}"
        if os.path.isdir(entry):  # noqa: PTH112 - Path.is_dir raises where the folder may not be searched
            if _to_enter(entry, roots, entered):
                yield from _below(entry, f"{name}/", roots, entered)
        elif entry.suffix.lower() in READABLE:
            yield entry, name


def _to_enter(folder: Path, roots: set[Path], entered: set[Path]) -> bool:
    real = folder.resolve()
    if real in entered:
        return False
    return not folder.is_symlink() or not any(real.is_relative_to(root) for root in roots)
