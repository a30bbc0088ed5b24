"""What every text rule makes of a fixed set of documents. ``python -m tests.unit.golden.record`` adds a new rule.

A recorded rule is never recorded again: vectors made with it are in use somewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.documents import VersionText
from pipeline.fingerprint import digest
from pipeline.limits import Limits
from pipeline.rules import RULE_VERSION, RULES
from pipeline.validation import validate
from tests.regex_tokenizer import RegexTokenizer

FOLDER = Path(__file__).parent
RECORD = FOLDER / "rules.json"
SIZES = (48, 96, 400)


def documents() -> dict[str, VersionText]:
    found = {}
    for path in sorted((FOLDER / "documents").iterdir()):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            upload = validate({"key": path.name, **json.loads(text)}, Limits())
            found[path.name] = VersionText(title=upload.title, events=upload.events)
        else:
            found[path.name] = VersionText(title=path.stem.replace("-", " "), body=text)
    return found


def outputs(version: int) -> dict[str, str]:
    """Document and passage size → hash of its passages by that rule."""
    rule, tokenizer = RULES[version], RegexTokenizer()
    return {
        f"{name}:{size}": digest(
            [[p.ordinal, p.hash, p.start, p.end, list(p.headings), p.tokens] for p in rule(text, tokenizer, size)]
        )
        for name, text in documents().items()
        for size in SIZES
    }


def main() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if str(RULE_VERSION) in recorded:
        raise SystemExit(f"rule {RULE_VERSION} is recorded; raise RULE_VERSION in pipeline/rules.py")
    recorded[str(RULE_VERSION)] = outputs(RULE_VERSION)
    RECORD.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
