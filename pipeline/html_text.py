"""HTML → the text a reader sees, as Markdown: headings, paragraphs, lists, tables, code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from bs4 import BeautifulSoup
from bs4.element import CData, NavigableString, Tag

_HIDDEN = ["script", "style", "noscript", "template", "svg", "head", "iframe", "object"]
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"}
    | {"figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "html", "li", "main", "nav", "ol", "p"}
    | {"pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "[document]"}
)
_BREAK = "\u2028"
_HEADING = re.compile(r"h([1-6])")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)


def declared_charset(data: bytes) -> str | None:
    """The encoding that a ``<meta>`` in the first 4 KiB names."""
    match = _CHARSET.search(data[:4096])
    return match.group(1).decode("ascii", "replace") if match else None


def html_text(source: str) -> tuple[str, str]:
    """``(title, body as Markdown)``; the title is the ``<title>``, else the first ``<h1>``, else empty."""
    soup = BeautifulSoup(source, "html.parser")
    named = soup.find("title") or soup.find("h1")
    title = " ".join(named.get_text(" ").split()) if named else ""
    for tag in soup.find_all(_HIDDEN) + soup.find_all(True, hidden=True):
        tag.extract()
    for tag in soup.find_all("br"):
        tag.replace_with(_BREAK)
    lines = [_line(block, "".join(texts)) for block, texts in _runs(soup)]
    return title, "".join(_spaced(lines)).strip()


def _runs(soup: BeautifulSoup) -> Iterator[tuple[Tag, list[str]]]:
    """The text between two block boundaries, with the block that holds it."""
    known: dict[int, Tag] = {id(soup): soup}
    strings = [
        (_block(text, known), str(text))
        for text in soup.descendants
        if type(text) is NavigableString or isinstance(text, CData)
    ]
    for _, group in groupby(strings, key=lambda entry: id(entry[0])):
        members = list(group)
        if any(text.strip() for _, text in members):
            yield members[0][0], [text for _, text in members]


def _block(text: NavigableString, known: dict[int, Tag]) -> Tag:
    """The nearest block around ``text``. Answers are kept, so that deep nesting stays linear."""
    passed: list[int] = []
    tag = text.parent
    while tag is not None and id(tag) not in known and tag.name not in _BLOCKS:
        passed.append(id(tag))
        tag = tag.parent
    if tag is None:
        raise ValueError("a text outside of any document")
    found = known.get(id(tag), tag)
    known.update(dict.fromkeys(passed, found))
    return found


def _line(block: Tag, text: str) -> tuple[str, str]:
    """``(kind, Markdown)`` of one run of text."""
    if block.name == "pre":
        fence = "```" if "```" not in text else "~~~~"
        code = text.replace(_BREAK, "\n").strip("\n")
        return "pre", f"{fence}\n{code}\n{fence}"
    flat = "\n".join(line for line in (" ".join(part.split()) for part in text.split(_BREAK)) if line)
    if heading := _HEADING.fullmatch(block.name):
        return "heading", f"{'#' * int(heading.group(1))} {' '.join(flat.split())}"
    if block.name in {"td", "th"}:
        return f"row {id(block.parent)}", " ".join(flat.split())
    inner = _item(block)
    return ("item", f"{inner}{flat}") if inner else ("text", flat)


def _item(block: Tag) -> str:
    """``- `` and its indentation for a list item or the first block in one."""
    for depth, tag in enumerate((block, *block.parents)):
        if tag.name == "li":
            lists = sum(parent.name in {"ul", "ol"} for parent in tag.parents)
            return f"{'  ' * max(0, min(lists, 8) - 1)}- "
        if depth > 3 or tag.name in {"body", "table", "[document]"}:
            break
    return ""


def _spaced(lines: list[tuple[str, str]]) -> Iterator[str]:
    """Cells of one row on one line, items below each other, everything else a blank line apart."""
    before = ""
    for kind, text in lines:
        if kind == before and kind.startswith("row "):
            yield f" | {text}"
        elif (kind == "item" == before) or (kind.startswith("row ") and before.startswith("row ")):
            yield f"\n{text}"
        else:
            yield f"\n\n{text}"
        before = kind
