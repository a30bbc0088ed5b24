"""The writer with a model: the prompt's envelope, the form of the answer, and what is checked in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pipeline.asking import Asker, Question
from pipeline.llm import Purpose, cut_to_tokens, estimate_tokens
from pipeline.markdown_blocks import blocks
from pipeline.prompts import VERSIONS, Language, element, language_of
from pipeline.sampling import domain_input
from pipeline.writing import Described, DocumentText, DomainTexts, Summary

# A heading list is read of at most this much text; nobody waits for the headings of a book.
_HEADINGS_WITHIN = 400_000

Line = Annotated[str, Field(min_length=1, max_length=2000)]


class DescribedForm(BaseModel):
    """The answer about one document."""

    model_config = ConfigDict(extra="ignore")

    # A small model that is not told where to stop goes on until its tokens are used up; a few labels too many are cut.
    covers: list[Line] = Field(min_length=1, max_length=40, json_schema_extra={"maxItems": 8})
    when_to_retrieve: Line


class SummaryForm(BaseModel):
    """The answer about one domain."""

    model_config = ConfigDict(extra="ignore")

    description: Line
    when_to_retrieve: Line


@dataclass(frozen=True, kw_only=True)
class LlmWriter:
    """Descriptions from an LLM. ``prompt_tokens`` bounds the documents' part of a prompt."""

    asker: Asker
    prompt_tokens: int
    name: str = "llm"
    calls_llm: bool = True

    @property
    def fingerprint(self) -> str:
        """One for documents and domains: prompt versions and model."""
        return f"{VERSIONS['describe']}+{VERSIONS['domain']}|{self.asker.llm.model}"

    def describe(self, document: DocumentText) -> Described:
        """Covers and when_to_retrieve in the document's language."""
        language = document.language
        question = Question(
            tenant=document.tenant,
            purpose=Purpose.DESCRIBE,
            prompt="describe",
            version=VERSIONS["describe"],
            language=language,
            data=document_data(document, self.prompt_tokens),
        )
        answer = self.asker.ask(question, DescribedForm, lambda a: _wrong(language, *a.covers, a.when_to_retrieve))
        return Described.tidy(answer.covers, answer.when_to_retrieve)

    def domain_data(self, domain: DomainTexts) -> str:
        """The envelope: everything the summary is made from."""
        return domain_input(domain.documents, domain.total, self.prompt_tokens).data

    def summarise(self, domain: DomainTexts) -> Summary:
        """Description and when_to_retrieve in the language of the documents."""
        language = domain.language
        question = Question(
            tenant=domain.tenant,
            purpose=Purpose.DOMAIN,
            prompt="domain",
            version=VERSIONS["domain"],
            language=language,
            data=self.domain_data(domain),
        )
        answer = self.asker.ask(question, SummaryForm, lambda a: _wrong(language, a.description, a.when_to_retrieve))
        return Summary.tidy(answer.description, answer.when_to_retrieve)


def document_data(document: DocumentText, budget: int) -> str:
    """The envelope of one document within ``budget`` tokens: whole when it fits, else its headings and beginning."""
    head = [
        element("title", document.title[:300]),
        element("keywords", "; ".join(document.keywords[:30])[:600]),
        element("summary", document.summary[:1000]),
        element("given_covers", "; ".join(document.given_covers)[:600]),
    ]
    room = budget - sum(map(estimate_tokens, head)) - 40
    body = element("text", document.body[: 4 * budget], line=False)
    if len(document.body) > 4 * budget or estimate_tokens(body) > room:
        headings = element("headings", _headings(document.body, room // 4))
        head.append(headings)
        # Escaping makes a text longer: cut until the escaped one fits.
        rest = room - estimate_tokens(headings)
        kept = cut_to_tokens(document.body[: 4 * budget], rest)
        while kept and estimate_tokens(body := element("text", kept, line=False)) > rest:
            kept = kept[: len(kept) * 9 // 10]
    return "\n".join(["<document>", *[h for h in head if h], body, "</document>"])


def _headings(body: str, budget: int) -> str:
    text = body[:_HEADINGS_WITHIN]
    return cut_to_tokens("; ".join(b.path[-1] for b in blocks(text) if b.level and b.path), max(0, budget))


def _wrong(language: Language, *texts: str) -> str:
    """A Chinese document is described in Chinese, another one not mainly in Chinese."""
    joined = " ".join(texts)
    fits = any("\u4e00" <= c <= "\u9fff" for c in joined) if language == "zh" else language_of(joined) != "zh"
    if fits:
        return ""
    return "请用中文回答" if language == "zh" else "the answer must be in the language of the document"
