from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pymilvus import DataType, MilvusClient

from pipeline.adapters import milvus_admin
from pipeline.adapters import milvus_schema as schema
from pipeline.adapters.milvus import MilvusVectors
from pipeline.errors import CollectionGone, InfrastructureDown, PipelineError, WrongSpace
from pipeline.ports import CollectionSpec, Scope, VectorStore
from tests.contracts_vectors import DIMENSION, SCOPE, VectorStoreContract, ask, row, unit
from tests.plugins.milvus_server import LiteServer, milvus_uri

__all__ = ["milvus_uri"]

pytestmark = pytest.mark.timeout(300)


def new_spec(**changes: object) -> CollectionSpec:
    content = {"name": f"t_{uuid.uuid4().hex}", "space": "m:8:a", "dimension": DIMENSION} | changes
    return CollectionSpec(**content)  # type: ignore[arg-type]


class TestMilvusVectors(VectorStoreContract):
    """On Milvus Lite's server, or on the one that ``WELLHEAD_TEST_MILVUS_URI`` names."""

    @pytest.fixture(scope="class")
    def store(self, milvus_uri: str) -> Iterator[VectorStore]:
        store = MilvusVectors(milvus_uri)
        type(self).stale = not store.admin().info().lite
        yield store
        store.close()


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[LiteServer]:
    server = LiteServer(tmp_path / "data")
    server.start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def store(lite: LiteServer) -> Iterator[MilvusVectors]:
    store = MilvusVectors(lite.uri, timeout=5)
    yield store
    store.close()


def test_nothing_is_connected_before_the_first_call() -> None:
    store = MilvusVectors("http://127.0.0.1:1", timeout=1)
    calls: list[Callable[[], object]] = [
        lambda: store.create(new_spec()),
        lambda: store.search(new_spec(), ask(), "", SCOPE, 5),
        lambda: store.admin().info(),
        lambda: store.admin().collections(),
        lambda: store.admin().drop("x"),
        lambda: list(store.admin().keys("x")),
    ]
    for call in calls:
        with pytest.raises(InfrastructureDown) as caught:
            call()
        assert caught.value.part == "milvus"


def test_a_server_that_hangs_is_down(lite: LiteServer) -> None:
    store = MilvusVectors(lite.uri, timeout=1)
    spec = new_spec()
    store.create(spec)
    assert lite._process is not None
    os.kill(lite._process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(InfrastructureDown):
            store.search(spec, ask(), "", SCOPE, 5)
        with pytest.raises(InfrastructureDown):
            store.upsert(spec, [row()])
    finally:
        os.kill(lite._process.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_restarted_server_serves_the_same_client(lite: LiteServer, store: MilvusVectors, how: signal.Signals) -> None:
    spec = new_spec()
    store.create(spec)
    store.upsert(spec, [row(f"{i}.1.0", text="数据库连接池") for i in range(3)])
    lite.stop(how)
    with pytest.raises(InfrastructureDown):
        store.search(spec, ask(), "", SCOPE, 5)
    lite.start()
    answer = store.search(spec, ask(), "连接池", SCOPE, 5)
    assert len(answer.dense) == 3
    assert answer.lexical is not None and len(answer.lexical) == 3
    assert len(store.fetch(spec, ["0.1.0", "1.1.0"])) == 2
    store.upsert(spec, [row("7.1.0")])
    assert store.admin().count(spec.name) == 4


def test_maintenance_works_right_after_a_restart(lite: LiteServer, store: MilvusVectors) -> None:
    spec = new_spec()
    store.create(spec)
    store.upsert(spec, [row(f"{i}.1.0") for i in range(3)])
    lite.stop()
    lite.start()
    assert sorted(k for page in store.admin().keys(spec.name, 2) for k in page) == ["0.1.0", "1.1.0", "2.1.0"]
    lite.stop()
    lite.start()
    assert store.admin().count(spec.name) == 3


def test_a_wiped_server_has_no_collection(lite: LiteServer, store: MilvusVectors, tmp_path: Path) -> None:
    spec = new_spec()
    store.create(spec)
    store.upsert(spec, [row()])
    lite.stop()
    (tmp_path / "data").rename(tmp_path / "lost")
    lite.start()
    with pytest.raises(CollectionGone):
        store.search(spec, ask(), "", SCOPE, 5)
    store.create(spec)
    store.upsert(spec, [row()])
    assert store.admin().count(spec.name) == 1


def test_a_torn_index_says_what_to_do(lite: LiteServer, store: MilvusVectors, tmp_path: Path) -> None:
    spec = new_spec()
    store.create(spec)
    # Enough for the server to write a segment and its index: headings, because cutting words takes it long.
    store.upsert(spec, [row(f"{i}.1.0", headings=("h" * 8_000,)) for i in range(400)])
    lite.stop()
    lite.start()
    store.search(spec, ask(), "", SCOPE, 5)
    lite.stop()
    torn = list((tmp_path / "data").rglob("*.idx"))
    assert torn, "the server wrote no index file"
    for path in torn:
        path.write_bytes(path.read_bytes()[:20])
    lite.start()
    with pytest.raises(PipelineError, match=r"indexes/\*\.idx"):
        store.search(spec, ask(), "", SCOPE, 5)
    lite.stop()
    for path in torn:
        path.unlink()
    lite.start()
    assert len(store.search(spec, ask(), "", SCOPE, 500).dense) == 400


def test_somebody_elses_collection_is_refused(lite: LiteServer, store: MilvusVectors) -> None:
    fields = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    fields.add_field("key", DataType.VARCHAR, is_primary=True, max_length=64)
    fields.add_field("dense", DataType.FLOAT_VECTOR, dim=DIMENSION)
    client = MilvusClient(lite.uri, timeout=5, dedicated=True)
    client.create_collection("theirs", schema=fields, timeout=5)
    client.close()
    with pytest.raises(WrongSpace, match="another generation"):
        store.create(new_spec(name="theirs"))


def test_a_half_made_collection_is_finished(lite: LiteServer, store: MilvusVectors) -> None:
    spec = new_spec()
    store._create_collection(spec)
    MilvusVectors(lite.uri).create(spec)
    store.upsert(spec, [row(text="连接池")])
    assert len(store.search(spec, ask(), "连接池", SCOPE, 5).lexical or ()) == 1


def _make_and_write(uri: str, spec: CollectionSpec, worker: int) -> None:
    store = MilvusVectors(uri, timeout=30)
    store.create(spec)
    for batch in range(5):
        store.upsert(spec, [row(f"{worker}.{batch + 1}.{i}", headings=("h" * 8_000,)) for i in range(100)])
        store.delete(spec, [f"{worker}.{batch + 1}.0"])


def test_processes_create_and_write_at_once(milvus_uri: str) -> None:
    spec = new_spec()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_make_and_write, args=(milvus_uri, spec, n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    store = MilvusVectors(milvus_uri)
    try:
        assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
        assert store.admin().count(spec.name) == 4 * 5 * 99
        keys = [k for page in store.admin().keys(spec.name) for k in page]
        assert len(keys) == len(set(keys)) == 4 * 5 * 99
    finally:
        store.admin().drop(spec.name)


def test_a_fork_gets_its_own_connection(milvus_uri: str) -> None:
    store = MilvusVectors(milvus_uri)
    mine = store._connection.client()
    assert store._connection.client() is mine
    store._connection._pid = -1
    assert store._connection.client() is not mine


def test_threads_share_one_store(milvus_uri: str) -> None:
    store, spec, failures = MilvusVectors(milvus_uri), new_spec(), []
    store.create(spec)

    def work(worker: int) -> None:
        try:
            for batch in range(5):
                store.upsert(spec, [row(f"{worker}.1.{batch * 10 + i}") for i in range(10)])
                store.search(spec, ask(), "连接池", SCOPE, 5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.admin().count(spec.name) == 200
    store.admin().drop(spec.name)


def test_a_store_that_measures_differently_is_refused(milvus_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = MilvusVectors(milvus_uri).admin()
    honest = milvus_admin.MilvusAdmin._probe
    roots = {"IP": lambda d: d, "L2": np.sqrt}
    monkeypatch.setattr(
        milvus_admin.MilvusAdmin, "_probe", lambda self, m: [float(roots[m](d)) for d in honest(self, m)]
    )
    with pytest.raises(PipelineError, match=r"answers L2 with 0\.0000, 0\.618\d, 1\.4142, 2\.0000"):
        admin.probe_metric()


def test_a_store_that_reads_no_chinese_is_refused(milvus_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MilvusVectors(milvus_uri)
    if not store.admin().info().lexical:
        pytest.skip("this server has no lexical leg")
    before = set(store.admin().collections())
    monkeypatch.setattr(schema, "ANALYZER", {"tokenizer": "standard"})
    with pytest.raises(PipelineError, match="连接池"):
        store.admin().probe_metric()
    assert set(store.admin().collections()) == before


def test_a_row_outside_of_the_scope_fails_closed(milvus_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, spec = MilvusVectors(milvus_uri), new_spec()
    store.create(spec)
    store.upsert(spec, [row()])
    store.fetch(spec, ["1.1.0"])
    monkeypatch.setattr("pipeline.adapters.milvus_rules.scope_filter", lambda _: 'tenant == "acme"')
    for scope in (
        Scope(tenant="other", kind="article"),
        Scope(tenant="acme", kind="episode"),
        Scope(tenant="acme", kind="article", domain="elsewhere"),
    ):
        with pytest.raises(PipelineError, match="outside of the scope"):
            VectorStoreContract().settled(lambda s=scope: store.search(spec, ask(unit(1)), "", s, 5), lambda _: False)
            for _ in range(50):
                store.search(spec, ask(unit(1)), "", scope, 5)
    store.admin().drop(spec.name)


@pytest.mark.parametrize(
    ("version", "number", "lite", "bm25", "sparse"),
    [
        ("milvus_lite-3.2.2", (3, 2), True, True, True),
        ("v2.3.5-lite", (2, 3), False, False, False),
        ("2.4.17", (2, 4), False, False, True),
        ("v2.5.0", (2, 5), False, True, True),
        ("3.0.1", (3, 0), False, True, True),
        ("unknown", (0, 0), False, False, False),
    ],
)
def test_what_a_version_can_do(version: str, number: tuple[int, int], lite: bool, bm25: bool, sparse: bool) -> None:
    server = schema.read_server(version)
    assert (server.number, server.lite, server.bm25, server.sparse) == (number, lite, bm25, sparse)
    assert schema.plan(new_spec(), server).lexical == ("bm25" if bm25 else None)
    assert schema.plan(new_spec(sparse=True), server).lexical == ("sparse" if sparse else None)
    assert schema.plan(new_spec(), server).exact is lite


def test_a_closed_store_opens_again(milvus_uri: str) -> None:
    store = MilvusVectors(milvus_uri)
    names = set(store.admin().collections())
    store.close()
    with contextlib.closing(store):
        assert set(store.admin().collections()) >= names - set(names)
        assert store.admin().info().version
