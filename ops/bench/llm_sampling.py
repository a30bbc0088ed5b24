"""What a domain's summary sees of a large domain: stratified sample, uniform sample, hierarchy.

``python -m ops.bench.llm_sampling DIRECTORY``: every Markdown file below it becomes a document of one domain,
multiplied to thousands. A theme is a folder. Measured: themes the one prompt shows, of all themes and weighed
by documents; the tokens; and how many lines of the prompt one more upload changes.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from pipeline.extractive import ExtractiveWriter
from pipeline.llm import estimate_tokens
from pipeline.sampling import DomainDocument, _compact, domain_input, stratified
from pipeline.writing import DocumentText

BUDGET = 6000


def read(directory: Path, limit: int) -> list[DomainDocument]:
    writer = ExtractiveWriter()
    made = []
    for path in sorted(directory.rglob("*.md"))[:limit]:
        body = path.read_text(encoding="utf-8", errors="replace")
        title = next((line.lstrip("# ").strip() for line in body.splitlines() if line.startswith("# ")), path.stem)
        said = writer.describe(DocumentText(tenant="t", title=title, body=body))
        made.append(
            DomainDocument(
                id=len(made),
                key=str(path.relative_to(directory)),
                title=title,
                covers=said.covers,
                when_to_retrieve=said.when_to_retrieve,
            )
        )
    return made


def theme(document: DomainDocument) -> str:
    return document.key.rpartition("/")[0]


def shown(order: list[DomainDocument], budget: int) -> list[DomainDocument]:
    taken = []
    for document in order:
        budget -= estimate_tokens(_compact(document)) + 1
        if budget < 0:
            break
        taken.append(document)
    return taken


def figures(name: str, taken: list[DomainDocument], everything: list[DomainDocument]) -> dict[str, object]:
    seen = {theme(d) for d in taken}
    return {
        "way": name,
        "listed": len(taken),
        "themes_shown": f"{len(seen)}/{len({theme(d) for d in everything})}",
        "documents_in_shown_themes": round(sum(theme(d) in seen for d in everything) / len(everything), 3),
    }


def main() -> None:
    documents = read(Path(sys.argv[1]), 5000)
    whole = sum(estimate_tokens(f"{d.title} {d.covers} {d.when_to_retrieve}") for d in documents)
    print(
        json.dumps(
            {"documents": len(documents), "tokens_of_all": whole, "calls_of_a_hierarchy": -(-whole // BUDGET) + 1}
        )
    )
    shuffled = documents[:]
    random.Random(1).shuffle(shuffled)
    print(json.dumps(figures("uniform", shown(shuffled, BUDGET), documents)))
    print(json.dumps(figures("stratified", shown(stratified(documents), BUDGET), documents)))
    made = domain_input(documents, len(documents), BUDGET)
    more = [*documents, DomainDocument(id=10**6, key="new/one.md", title="one more", covers=("a case",))]
    after = domain_input(more, len(more), BUDGET)
    changed = len(set(made.data.splitlines()) ^ set(after.data.splitlines()))
    print(
        json.dumps(
            {"prompt_tokens": estimate_tokens(made.data), "listed": made.listed, "lines_changed_by_one": changed}
        )
    )
    # One more upload in a folder that is large: is it another input, and so a call, at all?
    same = 0
    for i in range(50):
        copy = documents[(i * 37) % len(documents)]
        extra = DomainDocument(id=10**6, key=f"{theme(copy)}/new-{i}.md", title=f"new {i}", covers=copy.covers)
        same += domain_input([*documents, extra], len(documents) + 1, BUDGET).data == made.data
    print(json.dumps({"uploads_that_change_nothing": f"{same}/50"}))


if __name__ == "__main__":
    main()
