"""Which documents of a large domain the writer of its summary sees. Pure, deterministic, stable under small changes.

See ops/decisions/0010: a stratified sample costs one call whatever the domain's size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.fingerprint import digest
from pipeline.llm import cut_text, estimate_tokens
from pipeline.prompts import element


@dataclass(frozen=True, kw_only=True)
class DomainDocument:
    """What a domain's summary may know of one of its documents."""

    id: int
    key: str
    title: str
    summary: str = ""
    covers: tuple[str, ...] = ()
    when_to_retrieve: str = ""


@dataclass(frozen=True, kw_only=True)
class DomainInput:
    """The escaped envelope, and how many of the documents are in it."""

    data: str
    listed: int
    total: int


def domain_input(documents: Sequence[DomainDocument], total: int, budget: int) -> DomainInput:
    """The envelope of a domain within ``budget`` tokens; ``total`` counts documents that were not even read.

    All documents in full when they fit; else the most frequent covers with their counts in a fifth of the
    budget, and a stratified sample of titles and covers in the rest.
    """
    full = [_full(d) for d in sorted(documents, key=lambda d: d.id)]
    if len(documents) == total and sum(map(estimate_tokens, full)) + len(full) + _FRAME <= budget:
        return _envelope(full, "", len(full), total)
    labels = _labels(documents, (budget - _FRAME) // 5)
    room = budget - _FRAME - estimate_tokens(labels)
    lines: list[str] = []
    for document in stratified(documents):
        line = _compact(document)
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        lines.append(line)
    return _envelope(sorted(lines), labels, len(lines), total)


_FRAME = 60


def stratified(documents: Sequence[DomainDocument]) -> list[DomainDocument]:
    """All documents in the order in which a sample takes them: its every beginning is a stratified sample.

    Strata are folders of the keys, or the first cover where there is one folder only. A stratum of n documents
    gets its k-th turn at k / sqrt(n): every stratum is seen early, large ones more often, none drowns the others.
    Within a stratum the order is that of a hash of the key, so that one upload changes one line of the input.
    """
    strata: dict[str, list[DomainDocument]] = defaultdict(list)
    folders = {_folder(d) for d in documents}
    for document in documents:
        strata[_folder(document) if len(folders) > 1 else _theme(document)].append(document)
    turns: list[tuple[float, str, DomainDocument]] = []
    for members in strata.values():
        ordered = sorted(((digest(d.key), d) for d in members), key=lambda pair: pair[0])
        turns += [(k / len(members) ** 0.5, h, d) for k, (h, d) in enumerate(ordered)]
    return [d for _, _, d in sorted(turns, key=lambda turn: turn[:2])]


def _folder(document: DomainDocument) -> str:
    return document.key.rpartition("/")[0]


def _theme(document: DomainDocument) -> str:
    return document.covers[0] if document.covers else ""


def _labels(documents: Sequence[DomainDocument], budget: int) -> str:
    counts = Counter(c for d in documents for c in d.covers)
    chosen: list[str] = []
    for label, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        if count < 2:
            break
        # Rounded to a power of two: a count that grows by one is no other input, and costs no call.
        line = element("label", f"{label} × {1 << (count.bit_length() - 1)}")
        budget -= estimate_tokens(line) + 1
        if budget < 0:
            break
        chosen.append(line)
    return "\n".join(chosen)


def _full(document: DomainDocument) -> str:
    parts = [
        element("title", cut_text(document.title or document.key, 200)),
        element("summary", cut_text(document.summary, 300)),
        element("covers", "; ".join(document.covers[:8])),
        element("when", cut_text(document.when_to_retrieve, 300)),
    ]
    return "<document>" + "".join(parts) + "</document>"


def _compact(document: DomainDocument) -> str:
    title = element("title", cut_text(document.title or document.key, 80))
    return "<document>" + title + element("covers", cut_text("; ".join(document.covers[:3]), 80)) + "</document>"


def _envelope(lines: Sequence[str], labels: str, listed: int, total: int) -> DomainInput:
    # The exact total would make every upload another input; of a sample it is said in steps of a power of two.
    about = "" if listed == total else f' of_about="{1 << (total.bit_length() - 1)}"'
    body = "\n".join([*([labels] if labels else []), *lines])
    return DomainInput(data=f"<domain{about}>\n{body}\n</domain>", listed=listed, total=total)
