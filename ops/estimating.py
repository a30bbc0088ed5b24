"""How many tokens a text has: counted with the model's own tokenizer where it is unpacked, else estimated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pipeline.settings import Settings

Counter: TypeAlias = Callable[[Sequence[str]], list[int]]

# Measured with the bundled tokenizer on the demo documents: 1.6 characters a token in Chinese, 4 in English.
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_WIDE_CHARS, _NARROW_CHARS = 1.6, 4.0


def counter(settings: Settings) -> tuple[Counter, bool]:
    """A function that counts the tokens of each text, and whether it is exact."""
    directory = settings.data_dir / "models" / settings.embed_model
    if settings.embedder != "onnx" or not (directory / "tokenizer.json").exists():
        return estimated, False
    from pipeline.adapters.tokens import TextTokenizer

    prefix = json.loads((directory / "model.json").read_text("utf-8")).get("passage_prefix", "")
    return TextTokenizer.from_file(directory / "tokenizer.json", prefix).count, True


def estimated(texts: Sequence[str]) -> list[int]:
    """Tokens by the kind of characters."""
    return [_estimate(text) for text in texts]


def _estimate(text: str) -> int:
    wide = len(_WIDE.findall(text))
    return round(wide / _WIDE_CHARS + (len(text) - wide) / _NARROW_CHARS) + 1
