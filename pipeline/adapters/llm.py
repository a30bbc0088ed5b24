"""Any OpenAI-compatible endpoint through the ``openai`` package, under one total timeout a call.

The package's own timeouts are per read: a server that drips a byte a second would hold a worker for ever. So the
calls run on an event loop in a thread of their own, where a coroutine can be cancelled at its deadline.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from pipeline.llm import LlmBusy, LlmDown, LlmRejected, Reply, Schema, estimate_tokens

DEFAULT_WAIT = 15.0
LONGEST_WAIT = 3600.0
# What an endpoint may not know, best first: each is left out once the endpoint has complained of it.
_OPTIONS = ("bounds", "json_schema", "json_object", "temperature", "max_tokens")


class OpenAiLlm:
    """The ``Llm`` port. Thread-safe; connects at the first call."""

    def __init__(self, base_url: str, model: str, api_key: str = "", timeout: float = 60.0) -> None:
        self._base_url = base_url
        self._model = model
        self._api_key = api_key
        self._timeout = timeout
        self._lock = threading.Lock()
        self._unknown: set[str] = set()

    @property
    def model(self) -> str:
        """The model's name as configured."""
        return self._model

    def complete(self, messages: Sequence[Mapping[str, str]], schema: Schema, max_tokens: int) -> Reply:
        """One answer. Raises LlmBusy (429), LlmDown (5xx, 401–404, timeouts, no answer), LlmRejected (400, refusal)."""
        future = asyncio.run_coroutine_threadsafe(self._complete(messages, schema, max_tokens), self._loop)
        return future.result()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if "_loop" in self.__dict__:  # another thread was first
                return self.__dict__["_loop"]  # type: ignore[no-any-return]
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
            self.__dict__["_loop"] = loop
            return loop

    @cached_property
    def _client(self) -> openai.AsyncOpenAI:
        # No retries of its own: they would hide 429 from the budget and outlast the timeout.
        return openai.AsyncOpenAI(
            base_url=self._base_url, api_key=self._api_key or "none", max_retries=0, timeout=self._timeout
        )

    async def _complete(self, messages: Sequence[Mapping[str, str]], schema: Schema, max_tokens: int) -> Reply:
        try:
            async with asyncio.timeout(self._timeout):
                completion = await self._ask(messages, schema, max_tokens)
        except TimeoutError as error:
            raise LlmDown(f"no answer within {self._timeout:g} s") from error
        except openai.APIError as error:
            raise _meaning(error) from error
        except ValueError as error:
            raise LlmDown(f"the endpoint answered something that is not JSON: {error}") from error
        return _reply(completion, messages)

    async def _ask(self, messages: Sequence[Mapping[str, str]], schema: Schema, max_tokens: int) -> Any:
        while True:
            try:
                return await self._client.chat.completions.create(
                    model=self._model,
                    messages=[dict(m) for m in messages],  # type: ignore[misc]
                    **self._options(schema, max_tokens),
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if not self._learn(str(error)):
                    raise

    def _options(self, schema: Schema, max_tokens: int) -> dict[str, Any]:
        known = {o for o in _OPTIONS if o not in self._unknown}
        options: dict[str, Any] = {"max_tokens" if "max_tokens" in known else "max_completion_tokens": max_tokens}
        if "temperature" in known:
            options["temperature"] = 0
        if "json_schema" in known:
            form = {"name": schema.name, "schema": _strict(schema.json, bounds="bounds" in known), "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        elif "json_object" in known:
            options["response_format"] = {"type": "json_object"}
        return options

    def _learn(self, complaint: str) -> bool:
        """Leaves out what the endpoint complains of; False when it complains of nothing we could leave out."""
        complaint = complaint.casefold()
        words = {
            "bounds": ("maxitems", "minitems"),
            "json_schema": ("response_format", "json_schema", "json schema", "grammar"),
            "json_object": ("response_format", "json_object"),
            "temperature": ("temperature",),
            "max_tokens": ("max_completion_tokens", "'max_tokens'"),
        }
        for option in _OPTIONS:
            if option not in self._unknown and any(w in complaint for w in words[option]):
                self._unknown.add(option)
                return True
        return False


def _strict(schema: Mapping[str, Any], *, bounds: bool) -> dict[str, Any]:
    """The schema in the subset that strict mode takes: every property required, none besides, no lengths of strings.

    ``bounds``: on the number of items, which older endpoints do not take.
    """
    dropped = {"title", "minLength", "maxLength", "description", *(() if bounds else ("minItems", "maxItems"))}

    def plain(node: Any, *, names: bool = False) -> Any:
        if isinstance(node, list):
            return [plain(n) for n in node]
        if not isinstance(node, dict):
            return node
        made = {k: plain(v, names=k == "properties") for k, v in node.items() if names or k not in dropped}
        if not names and made.get("type") == "object":
            made |= {"additionalProperties": False, "required": list(made.get("properties", {}))}
        return made

    return dict(plain(dict(schema)))


def _reply(completion: Any, messages: Sequence[Mapping[str, str]]) -> Reply:
    if not isinstance(completion, ChatCompletion):
        raise LlmDown("the endpoint answered something that is no chat completion")
    if not completion.choices:
        raise _error_in_body((completion.model_extra or {}).get("error"))
    message = completion.choices[0].message
    if message.refusal:
        raise LlmRejected(f"the model refused: {message.refusal[:300]}")
    text = message.content or ""
    usage = completion.usage
    return Reply(
        text=text,
        tokens_in=usage.prompt_tokens if usage else sum(estimate_tokens(m["content"]) for m in messages),
        tokens_out=usage.completion_tokens if usage else estimate_tokens(text),
    )


def _error_in_body(error: Any) -> Exception:
    """Some proxies answer 200 and put the error into the body."""
    details = error if isinstance(error, dict) else {"message": str(error or "no choices and no error")}
    said = f"200 with an error: {str(details.get('message', details))[:300]}"
    code = str(details.get("code", "")) or str(details.get("type", ""))
    if code == "429" or "rate_limit" in code:
        return LlmBusy(said, retry_after=DEFAULT_WAIT)
    if code in {"400", "413", "422"} or "invalid_request" in code:
        return LlmRejected(said)
    return LlmDown(said)


def _meaning(error: openai.APIError) -> Exception:
    """Whose fault it is: ours to wait, the endpoint's, or this input's."""
    if isinstance(error, openai.RateLimitError):
        return LlmBusy(f"429: {error.message[:300]}", retry_after=_retry_after(error.response.headers))
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        if status == 503 and "retry-after" in error.response.headers:
            return LlmBusy(f"503: {error.message[:300]}", retry_after=_retry_after(error.response.headers))
        # Wrong credentials or a wrong model name are nobody's document's fault either.
        if status >= 500 or status in {401, 402, 403, 404, 408}:
            return LlmDown(f"{status}: {error.message[:300]}")
        return LlmRejected(f"{status}: {error.message[:300]}")
    return LlmDown(f"{type(error).__name__}: {error.message[:300]}")


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds, from a number or a date; bounded."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            seconds = DEFAULT_WAIT
    return min(LONGEST_WAIT, max(0.5, seconds))
