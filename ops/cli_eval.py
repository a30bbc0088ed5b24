"""``wellhead eval``: questions with known answers go through lookups; what came back is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from ops.cli_client import AsJson, CliError, DataDir, connected, print_json, stack_settings

LEVELS = ("PRECISE", "HIGHLY_RELEVANT", "REFERENCE")


@dataclass(frozen=True, kw_only=True)
class Question:
    """``answers``: keys that count as right; none: nothing should be found."""

    query: str
    answers: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """``keys``: what was handed out, best first."""

    question: Question
    level: str | None
    keys: tuple[str, ...]

    def right(self, among: int) -> bool:
        """Is one of the first ``among`` keys an answer? A key of the questions may be the end of a stored one."""
        return any(_same(key, answer) for key in self.keys[:among] for answer in self.question.answers)


def _same(key: str, answer: str) -> bool:
    return key == answer or key.endswith(f"/{answer}") or answer.endswith(f"/{key}")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(name="eval")(evaluate)


def evaluate(
    questions: Annotated[
        Path, typer.Argument(help="YAML: a list of {query, answers: KEYS}; without answers nothing should be found.")
    ],
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Ask every question without a session and count: recall, precision by level, false accepts."""
    asked = read_questions(questions)
    with connected(stack_settings(data_dir)) as api:
        outcomes = [_outcome(question, api.post("/v1/lookup", {"query": question.query})) for question in asked]
    found = figures(outcomes)
    print_json(found) if as_json else _print(found)


def read_questions(path: Path) -> list[Question]:
    """The questions of a file. Raises CliError (2) when it holds none."""
    try:
        items = yaml.safe_load(path.read_text("utf-8"))
        asked = [Question(query=i["query"], answers=frozenset(i.get("answers") or ())) for i in items or ()]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise CliError(f"{path} is no list of questions: {error}.", status=2) from error
    if not asked:
        # Zero questions would be a perfect score.
        raise CliError(f"{path} holds no question.", status=2)
    return asked


def _outcome(question: Question, answer: Mapping[str, Any]) -> Outcome:
    handed = [answer["primary"], *answer["supplement"]] if answer["primary"] else []
    return Outcome(question=question, level=answer["relevance_level"], keys=tuple(h["key"] for h in handed))


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts and shares; a share of nothing is None."""
    known = [o for o in outcomes if o.question.answers]
    unknown = [o for o in outcomes if not o.question.answers]
    levels = {}
    for level in LEVELS:
        at = [o for o in known if o.level == level]
        levels[level] = {
            "answerable": len(at),
            "precision": _share([o.right(1) for o in at]),
            "unanswerable": sum(o.level == level for o in unknown),
        }
    strong = {"PRECISE", "HIGHLY_RELEVANT"}
    return {
        "questions": len(outcomes),
        "answerable": len(known),
        "recall@1": _share([o.right(1) for o in known]),
        "recall@3": _share([o.right(3) for o in known]),
        "coverage": _share([o.level in strong for o in known]),
        "levels": levels,
        "unanswerable": len(unknown),
        "false_accepts": _share([o.level in strong for o in unknown]),
        "found_though_unanswerable": _share([o.level is not None for o in unknown]),
        "wrong": [
            {"query": o.question.query, "answers": sorted(o.question.answers), "got": list(o.keys), "level": o.level}
            for o in known
            if not o.right(1)
        ],
    }


def _share(of: Sequence[bool]) -> float | None:
    return round(sum(of) / len(of), 4) if of else None


def _print(found: dict[str, Any]) -> None:
    console = Console()
    for name in ("questions", "recall@1", "recall@3", "coverage", "false_accepts", "found_though_unanswerable"):
        console.print(f"{name.replace('_', ' ')}: {found[name]}")
    table = Table("level", "answerable", "precision", "unanswerable")
    for level, values in found["levels"].items():
        table.add_row(level, *("-" if values[n] is None else str(values[n]) for n in values))
    console.print(table)
    for wrong in found["wrong"]:
        console.print(f"not first: {wrong['query']} (wanted {', '.join(wrong['answers'])})", markup=False)
