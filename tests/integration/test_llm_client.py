"""The client against a scripted OpenAI-compatible server: each way an endpoint misbehaves, and what it means."""

from __future__ import annotations

import threading

import pytest

from pipeline.adapters.llm import OpenAiLlm
from pipeline.llm import LlmBusy, LlmDown, LlmRejected, Schema, json_object
from pipeline.llm_writer import DescribedForm

SCHEMA = Schema(name="describe", json=DescribedForm.model_json_schema())
MESSAGES = [{"role": "system", "content": "describe"}, {"role": "user", "content": "<document>支付</document>"}]


@pytest.fixture
def client(llm_server):
    return OpenAiLlm(llm_server.url, "scripted", timeout=2.0)


def ask(client):
    return client.complete(MESSAGES, SCHEMA, 200)


def test_an_answer_with_its_tokens(client, llm_server):
    reply = ask(client)
    assert json_object(reply.text)["covers"][1] == "支付超时"
    assert (reply.tokens_in, reply.tokens_out) == (100, 20)
    (call,) = llm_server.calls()
    form = call["request"]["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["additionalProperties"] is False
    assert form["schema"]["required"] == ["covers", "when_to_retrieve"]
    assert form["schema"]["properties"]["covers"]["maxItems"] == 8


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"kind": "429", "seconds": 7}, LlmBusy),
        ({"kind": "500"}, LlmDown),
        ({"kind": "401"}, LlmDown),
        ({"kind": "400"}, LlmRejected),
        ({"kind": "refusal"}, LlmRejected),
        ({"kind": "error_body"}, LlmDown),
        ({"kind": "error_body", "code": 429}, LlmBusy),
        ({"kind": "error_body", "code": "invalid_request_error"}, LlmRejected),
        ({"kind": "html"}, LlmDown),
        ({"kind": "hang", "seconds": 4}, LlmDown),
        ({"kind": "drip", "seconds": 6}, LlmDown),
    ],
)
def test_what_a_failure_means(client, llm_server, entry, error):
    llm_server.script(entry)
    with pytest.raises(error) as caught:
        ask(client)
    assert len(llm_server.calls()) == 1, "no hidden retries"
    if entry.get("seconds") == 7:
        assert caught.value.retry_after == 7
    assert ask(client).text, "the next call works"


def test_an_endpoint_that_is_not_there():
    with pytest.raises(LlmDown):
        ask(OpenAiLlm("http://127.0.0.1:9/v1", "m", timeout=2.0))


def test_an_endpoint_without_json_schema_is_asked_without(client, llm_server):
    llm_server.script({"kind": "no_schema", "times": 10})
    assert json_object(ask(client).text)
    assert [("response_format" in c["request"]) for c in llm_server.calls()] == [True, True, False]
    llm_server.forget()
    ask(client)
    assert len(llm_server.calls()) == 1, "learned once"


def test_an_endpoint_without_bounds_is_asked_without_them(client, llm_server):
    llm_server.script({"kind": "no_bounds", "times": 2})
    assert json_object(ask(client).text)
    first, second = (str(c["request"]["response_format"]) for c in llm_server.calls())
    assert "maxItems" in first and "maxItems" not in second and "json_schema" in second


def test_thinking_and_code_fences_around_the_answer(client, llm_server):
    llm_server.script({"kind": "fenced"})
    assert json_object(ask(client).text)["when_to_retrieve"]


def test_calls_of_many_threads_run_side_by_side(client, llm_server):
    llm_server.script(latency=0.3)
    threads = [threading.Thread(target=ask, args=(client,)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert llm_server.most_in_flight() >= 4
