"""One question to the model: memo first, then the budget, one call, one attempt at repair, and the account of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from pipeline.fingerprint import digest
from pipeline.llm import Llm, LlmBusy, LlmMalformed, Purpose, Reply, Schema, cut_text, estimate_tokens, json_object
from pipeline.prompts import Language, text

Answer = TypeVar("Answer", bound=BaseModel)


class Budget(Protocol):
    """Calls per hour and tokens per day of all workers together, and what the endpoint asked for."""

    def wait(self) -> float:
        """Seconds until a call may be made; 0 when one may be made now."""
        ...

    def reserve(self, tokens: int) -> float:
        """Books one call and its estimated tokens; a positive answer books nothing: seconds to wait."""
        ...

    def settle(self, tenant: str, purpose: Purpose, reserved: int, reply: Reply | None) -> None:
        """Replaces the estimate by what was used; ``None``: the call failed and used nothing we know of."""
        ...

    def pause(self, seconds: float, reason: str) -> None:
        """No worker calls the endpoint for that long."""
        ...


class Memo(Protocol):
    """Answers by the hash of everything that made them."""

    def recall(self, input_hash: str) -> dict[str, Any] | None: ...
    def keep(self, input_hash: str, output: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """``data`` is the escaped envelope, ``prompt`` the name of a text in ``prompts``, ``version`` that text's."""

    tenant: str
    purpose: Purpose
    prompt: str
    version: str
    language: Language
    data: str


@dataclass(frozen=True, kw_only=True)
class Asker:
    """What every call to the model goes through."""

    llm: Llm
    budget: Budget
    memo: Memo
    max_tokens: int = 800

    def ask(self, question: Question, form: type[Answer], check: Callable[[Answer], str]) -> Answer:
        """A validated answer. ``check`` says what is wrong with one that has the form, or nothing.

        Raises LlmBusy, LlmDown, LlmRejected; LlmMalformed when the repaired answer is no better.
        """
        system = text(question.prompt, question.language)
        key = digest(self.llm.model, question.version, question.tenant, system, question.data)
        kept = self.memo.recall(key)
        if kept is not None:
            return form.model_validate(kept)
        schema = Schema(name=question.prompt, json=form.model_json_schema())
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question.data}]
        reply = self._call(question, messages, schema)
        try:
            answer = _validated(reply, form, check)
        except LlmMalformed as error:
            repair = text("repair", question.language).format(reason=str(error))
            messages += [
                {"role": "assistant", "content": cut_text(reply.text, 2000) or "…"},
                {"role": "user", "content": repair},
            ]
            answer = _validated(self._call(question, messages, schema), form, check)
        # Kept before it is committed: a worker killed in between repeats no call.
        self.memo.keep(key, answer.model_dump())
        return answer

    def _call(self, question: Question, messages: list[dict[str, str]], schema: Schema) -> Reply:
        reserved = sum(estimate_tokens(m["content"]) for m in messages) + self.max_tokens
        if (wait := self.budget.reserve(reserved)) > 0:
            raise LlmBusy("the budget of calls or tokens is used up", retry_after=wait)
        reply: Reply | None = None
        try:
            reply = self.llm.complete(messages, schema, self.max_tokens)
        except LlmBusy as error:
            self.budget.pause(error.retry_after, str(error))
            raise
        finally:
            self.budget.settle(question.tenant, question.purpose, reserved, reply)
        return reply


def _validated(reply: Reply, form: type[Answer], check: Callable[[Answer], str]) -> Answer:
    try:
        answer = form.model_validate(json_object(reply.text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "the object"
        raise LlmMalformed(f"{where}: {first['msg']}") from error
    if problem := check(answer):
        raise LlmMalformed(problem)
    return answer
