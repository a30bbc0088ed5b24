"""The main job, upload to answer, on a real ledger and a real Milvus Lite, once with each encoder of the product."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.answers import LookupRequest
from pipeline.breaker import Breaker
from pipeline.documents import Lane, State, Upload
from pipeline.generations import in_order
from pipeline.ports import Scope
from pipeline.prepare import prepare
from pipeline.receive import receive_many
from pipeline.relevance import Level
from pipeline.settings import Settings
from pipeline.wiring import Parts
from tests.integration.test_flagembedding_embedder import minilm, tiny_m3_dir  # noqa: F401 - a fixture

TEXTS = {
    "pool": ("Connection pool exhausted", "The service waits for a free database connection. Raise maximumPoolSize."),
    "tls": ("Renewing certificates", "The edge certificate expires every ninety days and is renewed by a job."),
    "disk": ("Disk is filling up", "Old log files fill the volume. Rotate them and remove what is older than a week."),
    "kafka": ("Consumer lag grows", "The consumer group reads slower than producers write. Add partitions, ERR-4711."),
    "dns": ("Names do not resolve", "The resolver cache holds stale entries after a zone change. Flush it."),
    "queue": ("Jobs wait too long", "A worker holds its claim and makes no progress. The watchdog ends it."),
}


@pytest.fixture
def make_parts(
    database_url: str, memory_url: str, milvus_uri: str, models_dir: Path, tmp_path: Path
) -> Iterator[object]:
    made: list[Parts] = []

    def make(**settings: object) -> Parts:
        (tmp_path / "models").symlink_to(models_dir)
        urls = {"database_url": database_url, "memory_url": memory_url, "milvus_uri": milvus_uri}
        prefix = f"t{uuid.uuid4().hex[:8]}"
        made.append(Parts(Settings(data_dir=tmp_path, milvus_prefix=prefix, **urls, **settings)))
        return made[-1]

    yield make
    for parts in made:
        parts.invocations.close()
        for generation in parts.generations.active():
            parts.vectors.admin().drop(generation.collection)
        parts.engine.dispose()


def embed_all(parts: Parts) -> None:
    generation = parts.ensure_generation()
    assert generation is not None
    uploads = [Upload(key=key, title=title, body=body) for key, (title, body) in TEXTS.items()]
    list(receive_many(parts.documents, "default", uploads, Lane.LIVE))
    prepare(parts.preparing, parts.generations, parts.tokenizer_for, parts.prepare_limits, lambda: True)
    parts.drain(Breaker()).run(in_order(parts.generations.active()), lambda: True)
    states = {v.key: v.state for v in parts.documents.page("default", "", 100, {})}
    assert states == dict.fromkeys(TEXTS, State.SEARCHABLE)


def ask(parts: Parts, query: str):
    return parts.lookup("default").lookup(LookupRequest(query=query))


@pytest.mark.parametrize("encoder", ["onnx", "minilm"])
def test_questions_find_their_documents(make_parts, encoder):
    settings = {} if encoder == "onnx" else {"embedder": "flagembedding", "embed_model": str(minilm())}
    parts = make_parts(**settings)
    embed_all(parts)
    exact = ask(parts, "ERR-4711")
    assert (exact.relevance_level, exact.primary.key) == (Level.PRECISE, "kafka")
    dense = parts.vectors.search(
        parts.generations.serving().spec,
        parts.query_vectors.vector(parts.embedder.space, "no free database connection is left"),
        "",
        Scope(tenant="default", kind="article"),
        3,
    ).dense
    keys = {v.id: v.key for v in parts.documents.page("default", "", 100, {})}
    assert keys[dense[0].document] == "pool"
    parts.documents.delete("default", "kafka")
    answer = ask(parts, "ERR-4711")
    shown = {f.key for f in (answer.primary, *answer.supplement) if f is not None}
    assert "kafka" not in shown, "no lookup that starts after DELETE answered returns it"


def test_bge_m3_brings_its_own_lexical_leg(make_parts, tiny_m3_dir):  # noqa: F811 - the fixture
    parts = make_parts(embedder="flagembedding", embed_model=str(tiny_m3_dir))
    embed_all(parts)
    generation = parts.generations.serving()
    assert generation.space.sparse
    query = parts.query_vectors.vector(parts.embedder.space, TEXTS["tls"][1])
    assert query.sparse
    legs = parts.vectors.search(generation.spec, query, TEXTS["tls"][1], Scope(tenant="default", kind="article"), 6)
    keys = {v.id: v.key for v in parts.documents.page("default", "", 100, {})}
    assert keys[legs.lexical[0].document] == "tls", "the sparse weights find the text itself"
    exact = ask(parts, "ERR-4711")
    assert (exact.relevance_level, exact.primary.key) == (Level.PRECISE, "kafka")
