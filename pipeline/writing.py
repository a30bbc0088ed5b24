"""What a writer of descriptions gets and gives: the same for the model and for the extractive one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pipeline.llm import cut_text, one_line
from pipeline.prompts import Language, language_of
from pipeline.sampling import DomainDocument

MAX_COVERS = 8
MAX_COVER_CHARS = 64
MAX_WHEN_CHARS = 300
MAX_DESCRIPTION_CHARS = 256


@dataclass(frozen=True, kw_only=True)
class DocumentText:
    """The version to describe: its body text, and what its uploader said of it."""

    tenant: str
    title: str
    body: str
    summary: str = ""
    keywords: tuple[str, ...] = ()
    given_covers: tuple[str, ...] = ()

    @property
    def language(self) -> Language:
        return language_of(f"{self.title} {self.body[:4000]}")


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a document covers and when to retrieve it."""

    covers: tuple[str, ...]
    when_to_retrieve: str

    @classmethod
    def tidy(cls, covers: list[str], when_to_retrieve: str) -> Described:
        """Bounded and on one line each, whatever the writer wrote; no label twice."""
        labels = dict.fromkeys(label for c in covers if (label := cut_text(one_line(c), MAX_COVER_CHARS)))
        return cls(
            covers=tuple(labels)[:MAX_COVERS], when_to_retrieve=cut_text(one_line(when_to_retrieve), MAX_WHEN_CHARS)
        )


@dataclass(frozen=True, kw_only=True)
class DomainTexts:
    """The documents of a domain; ``total`` counts those that were not read, too."""

    tenant: str
    domain_id: str
    documents: tuple[DomainDocument, ...]
    total: int

    @property
    def language(self) -> Language:
        sample = self.documents[:200]
        return language_of(" ".join(f"{d.title} {' '.join(d.covers)} {d.summary[:200]}" for d in sample))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A domain's description, and when to search it, without the rule that the stage adds."""

    description: str
    when_to_retrieve: str

    @classmethod
    def tidy(cls, description: str, when_to_retrieve: str) -> Summary:
        """Bounded and on one line each."""
        return cls(
            description=cut_text(one_line(description), MAX_DESCRIPTION_CHARS),
            when_to_retrieve=cut_text(one_line(when_to_retrieve), MAX_WHEN_CHARS),
        )


class Writer(Protocol):
    """Writes descriptions; another fingerprint makes what it wrote stale."""

    @property
    def name(self) -> str:
        """What the ``writer`` columns say."""
        ...

    @property
    def calls_llm(self) -> bool:
        """Does it need the budget and the breaker?"""
        ...

    @property
    def fingerprint(self) -> str:
        """Prompt version and model, or the extractive rule."""
        ...

    def describe(self, document: DocumentText) -> Described:
        """Raises LlmBusy, LlmDown, LlmRejected, LlmMalformed."""
        ...

    def domain_data(self, domain: DomainTexts) -> str:
        """The whole input of :meth:`summarise`: the same data, the same summary."""
        ...

    def summarise(self, domain: DomainTexts) -> Summary:
        """Raises LlmBusy, LlmDown, LlmRejected, LlmMalformed."""
        ...
