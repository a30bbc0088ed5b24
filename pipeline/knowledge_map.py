"""The knowledge map: which domains exist and what their documents cover, for a planner's prompt. Pure.

What is left out, when not everything fits: every domain comes with its description and when_to_retrieve (those
with the fewest documents go first if even that is too much); then the documents are dealt to the domains in turn,
one each, the most recently used first, until the budget is used up. How many are left out is always said.
A document's own when_to_retrieve is not in the map: it is for the executor, and comes with a lookup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.fingerprint import digest
from pipeline.llm import cut_text, estimate_tokens, one_line
from pipeline.prompts import language_of, with_rule

LEFT_OUT_RULE = (
    "every domain is listed before any document; documents are dealt to the domains in turn, most recently used first"
)
_COVERS = 6


@dataclass(frozen=True, kw_only=True)
class MapDocument:
    """A document as the planner sees it."""

    title: str
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MapDomain:
    """A domain with its documents, most recently used first; ``total`` counts those not read, too."""

    domain_id: str
    description: str = ""
    when_to_retrieve: str = ""
    documents: tuple[MapDocument, ...] = ()
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class KnowledgeMap:
    """One tenant's map in both forms. ``etag`` is of the content, quoted; ``tokens`` of the YAML, estimated."""

    yaml: str
    json: dict[str, Any]
    etag: str
    tokens: int
    left_out_documents: int
    left_out_domains: int


@dataclass
class _Entry:
    domain: MapDomain
    head: list[str]
    lines: list[str] = field(default_factory=list)
    shown: list[MapDocument] = field(default_factory=list)

    @property
    def not_listed(self) -> int:
        return self.domain.total - len(self.shown)


def build_map(domains: Sequence[MapDomain], budget: int) -> KnowledgeMap:
    """The map within ``budget`` tokens of YAML."""
    room = budget - _FRAME
    entries: list[_Entry] = []
    for domain in sorted(domains, key=lambda d: (-d.total, d.domain_id)):
        entry = _Entry(domain, _head(domain))
        room -= _cost(entry.head) + _COUNT_LINES
        if room < 0:
            break
        entries.append(entry)
    _deal(entries, room)
    entries.sort(key=lambda e: e.domain.domain_id)
    return _render(entries, len(domains) - len(entries))


# The lines before the domains, and of each domain the lines "documents:" and "documents_not_listed: n".
_FRAME = 100
_COUNT_LINES = 26


def _deal(entries: Sequence[_Entry], room: int) -> None:
    turn = 0
    waiting = [e for e in entries if e.domain.documents]
    while waiting:
        for entry in list(waiting):
            document = entry.domain.documents[turn]
            lines = _document(document)
            cost = _cost(lines)
            if cost > room:
                return
            room -= cost
            entry.lines += lines
            entry.shown.append(document)
            if turn + 1 == len(entry.domain.documents):
                waiting.remove(entry)
        turn += 1


def _head(domain: MapDomain) -> list[str]:
    return [
        f"- domain_id: {quoted(domain.domain_id)}",
        f"  description: {quoted(cut_text(one_line(domain.description), 256))}",
        f"  when_to_retrieve: {quoted(_when(domain))}",
    ]


def _when(domain: MapDomain) -> str:
    # A domain whose summary is still to come has the rule already.
    sample = domain.when_to_retrieve or " ".join([domain.domain_id, *(d.title for d in domain.documents[:20])])
    return with_rule(domain.when_to_retrieve, language_of(sample))


def _document(document: MapDocument) -> list[str]:
    lines = [f"  - title: {quoted(cut_text(one_line(document.title), 120))}"]
    covers = ", ".join(quoted(one_line(c)) for c in document.covers[:_COVERS])
    return [*lines, f"    covers: [{covers}]"]


def _cost(lines: Sequence[str]) -> int:
    return sum(estimate_tokens(line) + 1 for line in lines)


def _render(entries: Sequence[_Entry], left_out_domains: int) -> KnowledgeMap:
    out = []
    for entry in entries:
        out += entry.head
        out += ["  documents:", *entry.lines] if entry.lines else ["  documents: []"]
        if entry.not_listed:
            out.append(f"  documents_not_listed: {entry.not_listed}")
    left_out = sum(e.not_listed for e in entries)
    head = [f"# Not everything fits: {LEFT_OUT_RULE}"] if left_out or left_out_domains else []
    if left_out_domains:
        head.append(f"domains_not_listed: {left_out_domains}")
    body = ["available_knowledge_domains:", *out] if out else ["available_knowledge_domains: []"]
    yaml = "\n".join([*head, *body]) + "\n"
    return KnowledgeMap(
        yaml=yaml,
        json=_json(entries, left_out, left_out_domains),
        etag=f'"{digest(yaml)[:32]}"',
        tokens=estimate_tokens(yaml),
        left_out_documents=left_out,
        left_out_domains=left_out_domains,
    )


def _json(entries: Sequence[_Entry], left_out: int, left_out_domains: int) -> dict[str, Any]:
    return {
        "available_knowledge_domains": [
            {
                "domain_id": e.domain.domain_id,
                "description": cut_text(one_line(e.domain.description), 256),
                "when_to_retrieve": _when(e.domain),
                "documents": [{"title": d.title, "covers": list(d.covers[:_COVERS])} for d in e.shown],
                "documents_not_listed": e.not_listed,
            }
            for e in entries
        ],
        "left_out": {"documents": left_out, "domains": left_out_domains, "rule": LEFT_OUT_RULE},
    }


# JSON leaves these as they are; in YAML they are line breaks, or not allowed at all.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def quoted(text: str) -> str:
    """A double-quoted scalar that YAML and JSON read alike: no text can leave its quotes."""
    return _NOT_IN_YAML.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))
