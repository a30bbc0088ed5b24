"""Bytes → text for the encodings that files really come in; everything else is refused, never guessed at."""

from __future__ import annotations

import codecs
import re

from pipeline.cleaning import clean_text
from pipeline.errors import PipelineError


class Binary(PipelineError):
    """This is not a text."""


class Undecodable(PipelineError):
    """The encoding of this text is not known."""


# Longest first: the UTF-32 mark begins with the UTF-16 one.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (b"%PDF-", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\xd0\xcf\x11\xe0")
_SAMPLE = 65_536
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffe\uffff]")
# ASCII, Latin to Cyrillic, punctuation, kana, Chinese, full-width forms.
_SCRIPTS = (
    (" ", "~"),
    ("\u00a0", "\u04ff"),
    ("\u2010", "\u203f"),
    ("\u3000", "\u30ff"),
    ("\u4e00", "\u9fff"),
    ("\uff00", "\uffef"),
)
_FEW = 16
_PLAUSIBLE = 0.8


def decode(data: bytes, declared: str | None = None) -> str:
    """The cleaned text of ``data``; ``declared`` is an encoding the file itself names.

    Tried in order: byte order mark, UTF-16 without one, UTF-8, the declared encoding, GB18030. A few NULs
    in a text are dropped. Raises Binary or Undecodable.
    """
    if data.startswith(_BINARY):
        raise Binary("the file is binary, not text")
    text = _decode(data, declared)
    if _too_many(text.count("\0"), text) or _too_many(len(_CONTROLS.findall(text)), text):
        raise Binary("the file is binary, not text")
    return clean_text(text)


def encoding_of(sample: bytes) -> str:
    """The encoding to read a stream of lines with, judged by its beginning; ``utf-8-sig`` when in doubt."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return "utf-8-sig" if name == "utf-8" else name[:6]
    return _unmarked_utf16(sample) or "utf-8-sig"


def _decode(data: bytes, declared: str | None) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], name)
    if wide := _unmarked_utf16(data):
        return _strictly(data, wide)
    try:
        # Lone surrogates in the bytes are replaced later, like those in JSON escapes.
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        position = error.start
    text = _declared(data, declared) or _gb18030(data)
    if text is not None:
        return text
    if data.count(0) > _FEW:
        raise Binary("the file is binary, not text")
    raise Undecodable(f"byte {position:,} is not UTF-8, and the text is not GB18030 either; save it as UTF-8")


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        raise Undecodable(f"the file is marked as {encoding}, but byte {error.start:,} does not fit that") from None


def _unmarked_utf16(data: bytes) -> str | None:
    """UTF-16 of text with some ASCII in it: NULs in every other place only, and a result that reads as text."""
    sample = data[:_SAMPLE]
    if len(data) % 2 and len(data) <= _SAMPLE:
        return None
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    for name, here, there in (("utf-16-le", high, low), ("utf-16-be", low, high)):
        if here > 0 and there == 0 and here >= len(sample) // 100 and _reads_as_text(sample, name):
            return name
    return None


def _reads_as_text(sample: bytes, encoding: str) -> bool:
    text = sample[: len(sample) // 2 * 2].decode(encoding, "replace")
    return bool(text) and _common(text) >= len(text) * 0.95


def _common(text: str) -> int:
    return sum(char in "\t\r\n" or any(low <= char <= high for low, high in _SCRIPTS) for char in text)


def _declared(data: bytes, declared: str | None) -> str | None:
    try:
        return data.decode(declared) if declared else None
    except (LookupError, UnicodeDecodeError):
        return None


def _gb18030(data: bytes) -> str | None:
    """Any legacy encoding may pass as GB18030 by chance; the common characters tell."""
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return None
    beyond = [char for char in text[:_SAMPLE] if char > "~"]
    common = len("".join(beyond).encode("gb2312", "ignore")) // 2
    return text if beyond and common >= len(beyond) * _PLAUSIBLE else None


def _too_many(count: int, text: str) -> bool:
    # Sixteen, or one in a hundred; in a short text no more than a third.
    return count > max(_FEW, len(text) // 100) or count * 3 > len(text)
