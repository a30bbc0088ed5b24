"""Which strings of a question must be found to the letter: numbers, ids, addresses, quoted words, bare names. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.terms import has_cjk, normalise, query_terms

# As in the function episode_strings of migration 0003: what a run is, and the pieces it is indexed under.
_RUN = re.compile(r"[a-z0-9]+(?:[._:/@#+-][a-z0-9]+)*")
_DATE = re.compile(r"(?:19|20)\d\d(?:[-/.]\d{1,2}){0,2}|\d{1,2}:\d\d(?::\d\d)?")
_QUOTED = re.compile(
    r"\"([^\"]{2,64})\"|“([^”]{2,64})”|「([^」]{2,64})」|『([^』]{2,64})』|《([^》]{2,64})》|`([^`]{2,64})`"
)
_BARE = re.compile(r"[\s。？！?!.,，、]+$")

MOST = 8
LONGEST = 128
# A bare name has at most so many words, or Chinese characters.
NAME_WORDS = 3
NAME_CHARACTERS = 6


@dataclass(frozen=True, kw_only=True)
class ExactStrings:
    """``tokens``: runs that the index of strings knows; ``phrases``: anything else, found by comparing texts.

    All are normalised (NFKC, case folded).
    """

    tokens: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tokens or self.phrases)

    @property
    def all(self) -> tuple[str, ...]:
        """Tokens, then phrases."""
        return self.tokens + self.phrases


def exact_strings(query: str) -> ExactStrings:
    """The strings of ``query`` that only a text which holds them can answer; years and dates are times, not names."""
    tokens = [run for run in _RUN.findall(normalise(query)) if _is_exact(run)]
    phrases = [normalise(next(filter(None, m.groups()))) for m in _QUOTED.finditer(query)]
    if not tokens and not phrases:
        phrases = _bare_name(query)
    return ExactStrings(
        tokens=tuple(dict.fromkeys(t[:LONGEST] for t in tokens))[:MOST],
        phrases=tuple(dict.fromkeys(p for p in phrases if p not in tokens))[:MOST],
    )


def _is_exact(run: str) -> bool:
    if _DATE.fullmatch(run):
        return False
    digits = sum(c.isdigit() for c in run)
    if digits == len(run):
        return digits >= 4
    if digits:
        return len(run) >= 3
    # No digit: an address or an identifier, not a hyphenated word or an abbreviation.
    return ("@" in run or "." in run) and len(run) >= 5


def _bare_name(query: str) -> list[str]:
    """A question that is nothing but a name is looked for to the letter as well."""
    said = _BARE.sub("", query).strip()
    if has_cjk(said):
        whole = normalise(said)
        return [whole] if 2 <= len(whole) <= NAME_CHARACTERS and " " not in whole and _says_only(whole) else []
    words = said.split()
    named = 1 <= len(words) <= NAME_WORDS and all(w[:1].isupper() for w in words)
    return [normalise(said)] if named and len(said) >= 2 else []


def _says_only(whole: str) -> bool:
    """Does no question word take part in it?"""
    pairs = {whole[i : i + 2] for i in range(len(whole) - 1)}
    return pairs == set(query_terms(whole))
