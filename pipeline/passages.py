"""Version → passages: which stretches of the body text belong together, before they are packed to the window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pipeline.cutting import Cutter, Head, Unit, measure
from pipeline.documents import Event, Passage, VersionText
from pipeline.markdown_blocks import MarkdownBlock, blocks, strip
from pipeline.ports import Tokenizer


def cut_passages(version: VersionText, tokenizer: Tokenizer, passage_tokens: int) -> list[Passage]:
    """The passages of a version, in order, none over ``passage_tokens`` by the tokenizer's own count.

    An article is cut along its Markdown, an episode between its events. ``Passage.text`` is
    ``{title}\\n{headings}\\n{piece}``. A blank body, or an episode of media alone, has none.
    Raises WindowTooSmall.
    """
    text = version.body_text
    if version.events is None:
        units = list(_article_units(text, tokenizer))
    else:
        units = list(_episode_units(version.events, text, tokenizer))
    if not units:
        return []
    head = Head(version.title, tokenizer, passage_tokens)
    return Cutter(text=text, tokenizer=tokenizer, budget=passage_tokens, head=head).cut(units)


def _article_units(text: str, tokenizer: Tokenizer) -> Iterator[Unit]:
    found: list[MarkdownBlock | None] = [*blocks(text), None]
    for block, following in pairwise(found):
        if block is None:
            continue
        yield Unit(
            start=block.start,
            end=block.end,
            tokens=measure(text, block.start, block.end, tokenizer),
            path=block.path,
            section=block.section,
            heading=block.level > 0,
            lead=block.level > 0 or _announces(text, block, following),
            lines=block.lines,
        )


def _announces(text: str, block: MarkdownBlock, following: MarkdownBlock | None) -> bool:
    """A line ending with a colon and the list or command after it are read together."""
    return following is not None and following.level == 0 and text[block.end - 1] in ":："


def _episode_units(events: tuple[Event, ...], text: str, tokenizer: Tokenizer) -> Iterator[Unit]:
    offset = 0
    for said in (event.text for event in events):
        if not said:
            continue
        start, end = strip(text, offset, offset + len(said))
        offset += len(said) + len("\n\n")
        if start < end:
            yield Unit(start=start, end=end, tokens=measure(text, start, end, tokenizer))
