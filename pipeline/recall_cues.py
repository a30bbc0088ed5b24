"""Who and when: speakers and dates that a question names, and what they say for an episode. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.terms import has_cjk, normalise

# In units of the fused score's spread: enough to choose between neighbours, not enough to lift what says nothing.
SPEAKER = 0.3
DAY = 0.6
MONTH = 0.3

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_NAMES = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})(?:[-/.](\d{1,2}))?(?!\d)")
_CHINESE = re.compile(r"(?:((?:19|20)\d\d) ?年 ?)?(\d{1,2}) ?月 ?(?:(\d{1,2}) ?[日号])?")
_MONTH_DAY = re.compile(rf"(?<![a-z])({_NAMES})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? ((?:19|20)\d\d))?")
_DAY_MONTH = re.compile(rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_NAMES})(?![a-z])(?:,? ((?:19|20)\d\d))?")
_IN_MONTH = re.compile(
    rf"(?<![a-z])(?:in|since|during|early|late|end of|beginning of) ({_NAMES})(?![a-z])(?:,? ((?:19|20)\d\d))?"
)


@dataclass(frozen=True)
class Date:
    """A date as a question names it; None: not said."""

    year: int | None
    month: int
    day: int | None

    def holds(self, at: datetime) -> bool:
        """Is it that day, or in that month, at the place where it was written down?"""
        same_year = self.year is None or self.year == at.year
        return same_year and self.month == at.month and (self.day is None or self.day == at.day)


def dates(query: str) -> tuple[Date, ...]:
    """The dates of a question, in Chinese, English and figures. What needs to know today is not among them."""
    text = normalise(query)
    found = [_date(y, m, d) for y, m, d in _ISO.findall(text)]
    found += [_date(y, m, d) for y, m, d in _CHINESE.findall(text)]
    found += [_date(y, str(_MONTHS[m]), d) for m, d, y in _MONTH_DAY.findall(text)]
    found += [_date(y, str(_MONTHS[m]), d) for d, m, y in _DAY_MONTH.findall(text)]
    found += [_date(y, str(_MONTHS[m]), "") for m, y in _IN_MONTH.findall(text)]
    return tuple(dict.fromkeys(date for date in found if date is not None))


def bonus(query: str, events: Iterable[Mapping[str, Any]]) -> float:
    """What speakers and dates of the question add to the score of the episode with these raw events."""
    asked, named = normalise(query), dates(query)
    speakers: set[str] = set()
    best = 0.0
    for event in events:
        speakers.update(filter(None, (event.get("user_id"), event.get("agent_id"))))
        if named and best < DAY:
            at = datetime.fromisoformat(event["at"])
            best = max([best, *(MONTH if d.day is None else DAY for d in named if d.holds(at))])
    return best + (SPEAKER if any(_names(asked, normalise(s)) for s in speakers) else 0.0)


def _date(year: str, month: str, day: str) -> Date | None:
    number = int(month)
    if not 1 <= number <= 12 or (day and not 1 <= int(day) <= 31):
        return None
    return Date(int(year) if year else None, number, int(day) if day else None)


def _names(asked: str, speaker: str) -> bool:
    if len(speaker) < 2:
        return False
    if has_cjk(speaker):
        return speaker in asked
    return re.search(rf"(?<![a-z0-9_]){re.escape(speaker)}(?![a-z0-9_])", asked) is not None
