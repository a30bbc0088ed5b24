"""What every vector store must do; run on the fake, on Milvus Lite's server and on a real Milvus."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline.errors import BadVector, CollectionGone, Conflict, InvalidInput, WrongSpace
from pipeline.ports import CollectionSpec, Floats, LegResults, QueryVector, Scope, VectorRow, VectorStore

DIMENSION = 8
SCOPE = Scope(tenant="acme", kind="article")


def unit(*numbers: float) -> Floats:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.float32(np.linalg.norm(vector))


def row(key: str = "1.1.0", dense: Floats | None = None, **changes: object) -> VectorRow:
    document, version, ordinal = (int(x) for x in key.split("."))
    content: dict[str, object] = {
        "key": key,
        "tenant": "acme",
        "kind": "article",
        "domain": "default",
        "document": document,
        "version": version,
        "ordinal": ordinal,
        "hash": f"hash-{key}",
        "start": 10,
        "end": 42,
        "headings": ("一级", 'two "quoted"'),
        "text": "nothing in particular",
        "dense": unit(1) if dense is None else dense,
    }
    return VectorRow(**(content | changes))  # type: ignore[arg-type]


def ask(dense: Floats | None = None, space: str = "m:8:a", sparse: dict[int, float] | None = None) -> QueryVector:
    return QueryVector(space=space, dense=unit(1) if dense is None else dense, sparse=sparse)


class VectorStoreContract:
    """Subclasses give a ``store`` fixture. ``stale``: reads may lag behind writes below Strong."""

    stale = False

    @pytest.fixture
    def spec(self, store: VectorStore) -> Iterator[CollectionSpec]:
        spec = CollectionSpec(name=f"t_{uuid.uuid4().hex}", space="m:8:a", dimension=DIMENSION)
        store.create(spec)
        yield spec
        store.admin().drop(spec.name)

    @pytest.fixture
    def sparse_spec(self, store: VectorStore) -> Iterator[CollectionSpec]:
        spec = CollectionSpec(name=f"t_{uuid.uuid4().hex}", space="m:8:a", dimension=DIMENSION, sparse=True)
        store.create(spec)
        yield spec
        store.admin().drop(spec.name)

    def settled(self, search: Callable[[], LegResults], enough: Callable[[LegResults], bool]) -> LegResults:
        """The first answer that is ``enough``, or the last one: a bounded-stale store may take a moment."""
        answer = search()
        deadline = time.monotonic() + 15
        while self.stale and not enough(answer) and time.monotonic() < deadline:
            time.sleep(0.2)
            answer = search()
        return answer

    def find(self, store: VectorStore, spec: CollectionSpec, scope: Scope, n: int, limit: int = 10) -> set[str]:
        answer = self.settled(lambda: store.search(spec, ask(), "", scope, limit), lambda a: len(a.dense) == n)
        return {hit.key for hit in answer.dense}

    def read(self, store: VectorStore, spec: CollectionSpec, text: str) -> list[str]:
        if not store.admin().info().lexical:
            pytest.skip("this server has no lexical leg")
        answer = self.settled(lambda: store.search(spec, None, text, SCOPE, 10), lambda a: bool(a.lexical))
        assert answer.lexical is not None
        assert all(hit.lexical is not None and hit.lexical > 0 and hit.dense is None for hit in answer.lexical)
        scores = [hit.lexical for hit in answer.lexical]
        assert scores == sorted(scores, key=lambda s: -(s or 0))
        return [hit.key for hit in answer.lexical]

    def test_create_is_idempotent_and_keeps_rows(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row()])
        store.create(spec)
        assert store.admin().count(spec.name) == 1
        assert spec.name in store.admin().collections()

    def test_a_collection_that_was_dropped_is_created_again_by_whoever_had_it_open(
        self, store: VectorStore, spec: CollectionSpec
    ) -> None:
        store.upsert(spec, [row()])
        store.admin().drop(spec.name)
        store.create(spec)
        assert store.admin().count(spec.name) == 0
        store.upsert(spec, [row()])
        assert store.admin().count(spec.name) == 1

    @pytest.mark.parametrize(
        ("change", "error"),
        [({"space": "m:8:b"}, WrongSpace), ({"dimension": 4}, WrongSpace), ({"schema_version": 2}, Conflict)],
    )
    def test_another_spec_under_a_name_is_refused(
        self, store: VectorStore, spec: CollectionSpec, change: dict[str, object], error: type[Exception]
    ) -> None:
        other = CollectionSpec(**({"name": spec.name, "space": "m:8:a", "dimension": DIMENSION} | change))  # type: ignore[arg-type]
        with pytest.raises(error):
            store.create(other)
        with pytest.raises(error):
            store.fetch(other, ["1.1.0"])

    def test_rows_come_back_exactly(self, store: VectorStore, spec: CollectionSpec) -> None:
        vector = unit(0.1, -0.7, 0.3, 1e-4, 0.5)
        store.upsert(spec, [row(dense=vector)])
        stored = store.fetch(spec, ["1.1.0", "9.9.9"], vectors=True)
        assert set(stored) == {"1.1.0"}
        assert stored["1.1.0"].hash == "hash-1.1.0"
        assert stored["1.1.0"].dense is not None
        assert np.array_equal(stored["1.1.0"].dense, vector)
        assert store.fetch(spec, ["1.1.0"])["1.1.0"].dense is None
        assert store.fetch(spec, []) == {}

    def test_a_hit_tells_where_its_passage_is(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row("12.3.4", unit(0.8085, (1 - 0.8085**2) ** 0.5))])
        answer = self.settled(lambda: store.search(spec, ask(), "", SCOPE, 5), lambda a: bool(a.dense))
        (hit,) = answer.dense
        assert (hit.key, hit.document, hit.version, hit.ordinal) == ("12.3.4", 12, 3, 4)
        assert (hit.domain, hit.hash, hit.start, hit.end) == ("default", "hash-12.3.4", 10, 42)
        assert hit.headings == ("一级", 'two "quoted"')
        assert hit.dense == pytest.approx(0.8085, abs=1e-5)
        assert hit.lexical is None

    def test_what_only_the_words_find_has_its_dense_score_too(self, store: VectorStore, spec: CollectionSpec) -> None:
        if not store.admin().info().lexical:
            pytest.skip("this server has no lexical leg")
        near, far = row("1.1.0", unit(1)), row("2.1.0", unit(0.6, 0.8), text="ERR_TIMEOUT of the gateway")
        store.upsert(spec, [near, far])
        answer = self.settled(lambda: store.search(spec, ask(), "ERR_TIMEOUT", SCOPE, 1), lambda a: bool(a.lexical))
        assert [h.key for h in answer.dense] == ["1.1.0"], "the dense leg gives what was asked for, no more"
        assert answer.lexical is not None
        assert [(h.key, h.dense) for h in answer.lexical] == [("2.1.0", pytest.approx(0.6, abs=1e-5))]

    def test_upsert_replaces(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row(), row("1.1.1")])
        store.upsert(spec, [row(hash="new", dense=unit(0, 1))])
        assert store.admin().count(spec.name) == 2
        stored = store.fetch(spec, ["1.1.0"], vectors=True)["1.1.0"]
        assert stored.hash == "new"
        assert stored.dense is not None and stored.dense[1] == 1.0

    def test_deleted_rows_are_gone(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row(), row("1.1.1")])
        store.delete(spec, ["1.1.0", "7.7.7"])
        store.delete(spec, ["1.1.0"])
        assert set(store.fetch(spec, ["1.1.0", "1.1.1"])) == {"1.1.1"}
        assert self.find(store, spec, SCOPE, 1) == {"1.1.1"}

    def test_a_search_sees_its_scope_only(self, store: VectorStore, spec: CollectionSpec) -> None:
        evil = 'x" or tenant != "'
        store.upsert(
            spec,
            [
                row("1.1.0"),
                row("2.1.0", domain=evil),
                row("3.1.0", tenant="other"),
                row("4.1.0", kind="episode"),
                row("5.1.0", domain="back\\slash\n'quote'\t结束\\"),
            ],
        )
        assert self.find(store, spec, SCOPE, 3) == {"1.1.0", "2.1.0", "5.1.0"}
        assert self.find(store, spec, Scope(tenant="acme", kind="article", domain="default"), 1) == {"1.1.0"}
        assert self.find(store, spec, Scope(tenant="acme", kind="article", domain=evil), 1) == {"2.1.0"}
        assert self.find(store, spec, Scope(tenant="other", kind="article"), 1) == {"3.1.0"}
        assert self.find(store, spec, Scope(tenant="acme", kind="episode"), 1) == {"4.1.0"}
        tricky = Scope(tenant="acme", kind="article", domain="back\\slash\n'quote'\t结束\\")
        assert self.find(store, spec, tricky, 1) == {"5.1.0"}
        assert self.find(store, spec, Scope(tenant=evil, kind="article"), 0) == set()

    @pytest.mark.parametrize(
        "scope",
        [
            Scope(tenant="", kind="article"),
            Scope(tenant="acme", kind=""),
            Scope(tenant="acme", kind="article", domain=""),
            Scope(tenant="a\x00", kind="article"),
        ],
    )
    def test_an_empty_scope_is_an_error(self, store: VectorStore, spec: CollectionSpec, scope: Scope) -> None:
        with pytest.raises(InvalidInput):
            store.search(spec, ask(), "text", scope, 5)

    def test_a_small_scope_is_found_whole_among_many(self, store: VectorStore, spec: CollectionSpec) -> None:
        random = np.random.default_rng(7)
        crowd = random.normal(size=(4000, DIMENSION)).astype(np.float32)
        crowd /= np.linalg.norm(crowd, axis=1, keepdims=True)
        rows = [
            row(f"{i}.1.0", crowd[i], tenant="small" if i % 200 == 0 else "big", text="x") for i in range(len(crowd))
        ]
        store.upsert(spec, rows)
        found = self.find(store, spec, Scope(tenant="small", kind="article"), 20, limit=50)
        assert found == {f"{i}.1.0" for i in range(0, 4000, 200)}

    def test_dense_hits_are_ordered_cosines(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row("1.1.0", unit(-1)), row("2.1.0", unit(1)), row("3.1.0", unit(1, 1))])
        answer = self.settled(lambda: store.search(spec, ask(), "", SCOPE, 5), lambda a: len(a.dense) == 3)
        assert [hit.key for hit in answer.dense] == ["2.1.0", "3.1.0", "1.1.0"]
        scores = [hit.dense for hit in answer.dense]
        assert scores == pytest.approx([1.0, 0.5**0.5, -1.0], abs=1e-5)
        assert all(s is not None and -1 <= s <= 1 for s in scores)
        assert len(store.search(spec, ask(), "", SCOPE, 2).dense) == 2

    def test_chinese_words_and_codes_are_found(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(
            spec,
            [
                row("1.1.0", text="数据库连接池怎么配置，最大连接数是多少？"),
                row("2.1.0", text="支付失败 ERR_TIMEOUT，重试三次。"),
                row("3.1.0", text="服务监听端口 8005，日志在 /var/log。"),
                row("4.1.0", text="用户扣款以后怎么退款？"),
            ],
        )
        assert self.read(store, spec, "连接池") == ["1.1.0"]
        assert self.read(store, spec, "ERR_TIMEOUT") == ["2.1.0"]
        assert self.read(store, spec, "err_timeout") == ["2.1.0"]
        assert self.read(store, spec, "8005") == ["3.1.0"]
        assert self.read(store, spec, "扣款") == ["4.1.0"]

    @pytest.mark.parametrize("text", ["", "   ", "？", "，。!?\n"])
    def test_a_text_without_words_finds_nothing(self, store: VectorStore, spec: CollectionSpec, text: str) -> None:
        store.upsert(spec, [row(text="怎么办？，。!?")])
        answer = self.settled(lambda: store.search(spec, ask(), text, SCOPE, 5), lambda a: bool(a.dense))
        assert len(answer.dense) == 1
        assert not answer.lexical

    def test_without_a_vector_there_is_no_dense_leg(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row(text="连接池")])
        assert store.search(spec, None, "连接池", SCOPE, 5).dense == ()

    def test_over_long_text_is_cut_for_the_lexical_leg(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row(text="连接池" + "字" * 40_000), row("2.1.0", headings=("长" * 9_000, "b"))])
        assert self.read(store, spec, "连接池") == ["1.1.0"]
        assert self.find(store, spec, SCOPE, 2) == {"1.1.0", "2.1.0"}

    @pytest.mark.parametrize(
        "bad",
        [
            row(dense=np.full(DIMENSION, np.nan, dtype=np.float32)),
            row(dense=np.full(DIMENSION, np.inf, dtype=np.float32)),
            row(dense=unit(1)[:4]),
            row(dense=unit(1) * np.float32(1.05)),
            row(dense=np.zeros(DIMENSION, dtype=np.float32)),
            row(tenant="长" * 100),
            row(tenant=""),
            row(domain="\x00"),
            row(text="\ud800"),
        ],
        ids=["nan", "inf", "dimension", "norm", "zero", "bytes", "tenant", "nul", "surrogate"],
    )
    def test_a_bad_row_stops_its_whole_batch(self, store: VectorStore, spec: CollectionSpec, bad: VectorRow) -> None:
        with pytest.raises(BadVector):
            store.upsert(spec, [row("2.1.0"), bad])
        assert store.admin().count(spec.name) == 0

    def test_a_key_twice_in_a_batch_is_refused(self, store: VectorStore, spec: CollectionSpec) -> None:
        with pytest.raises(BadVector, match="twice"):
            store.upsert(spec, [row(), row("2.1.0"), row(hash="again")])
        assert store.admin().count(spec.name) == 0

    def test_a_bad_question_is_refused(self, store: VectorStore, spec: CollectionSpec) -> None:
        with pytest.raises(WrongSpace):
            store.search(spec, ask(space="m:8:b"), "", SCOPE, 5)
        with pytest.raises(BadVector):
            store.search(spec, ask(np.full(DIMENSION, np.nan, dtype=np.float32)), "", SCOPE, 5)
        with pytest.raises(BadVector):
            store.search(spec, ask(unit(1)[:4]), "", SCOPE, 5)
        with pytest.raises(InvalidInput):
            store.search(spec, None, "a\x00", SCOPE, 5) if store.admin().info().lexical else store.fetch(spec, [""])
        for limit in (0, 16_385):
            with pytest.raises(InvalidInput):
                store.search(spec, ask(), "", SCOPE, limit)

    def test_sparse_weights_are_the_lexical_leg(self, store: VectorStore, sparse_spec: CollectionSpec) -> None:
        if not store.admin().info().lexical:
            pytest.skip("this server stores no sparse vectors")
        store.upsert(
            sparse_spec,
            [
                row("1.1.0", sparse={3: 0.5, 9: 0.25}),
                row("2.1.0", sparse={9: 0.75, 11: 0.0}),
                row("3.1.0", sparse={}),
            ],
        )
        question = ask(sparse={9: 2.0, 500: 1.0})
        answer = self.settled(
            lambda: store.search(sparse_spec, question, "ignored", SCOPE, 5), lambda a: len(a.dense) == 3
        )
        assert answer.lexical is not None
        assert [(h.key, h.lexical) for h in answer.lexical] == [("2.1.0", 1.5), ("1.1.0", 0.5)]
        assert store.search(sparse_spec, ask(sparse={}), "", SCOPE, 5).lexical == ()
        assert store.search(sparse_spec, None, "text", SCOPE, 5).lexical is None
        stored = store.fetch(sparse_spec, ["1.1.0", "3.1.0"], vectors=True)
        assert stored["1.1.0"].sparse == {3: 0.5, 9: 0.25}
        assert stored["3.1.0"].sparse == {}
        for wrong in (None, {1: float("nan")}, {1: -0.5}, {-1: 1.0}):
            with pytest.raises(BadVector):
                store.upsert(sparse_spec, [row(sparse=wrong)])

    def test_a_dropped_collection_is_gone(self, store: VectorStore, spec: CollectionSpec) -> None:
        store.upsert(spec, [row()])
        store.admin().drop(spec.name)
        store.admin().drop(spec.name)
        with pytest.raises(CollectionGone):
            store.upsert(spec, [row()])
        with pytest.raises(CollectionGone):
            store.search(spec, ask(), "text", SCOPE, 5)
        with pytest.raises(CollectionGone):
            store.fetch(spec, ["1.1.0"])
        with pytest.raises(CollectionGone):
            store.delete(spec, ["1.1.0"])
        with pytest.raises(CollectionGone):
            store.admin().count(spec.name)
        with pytest.raises(CollectionGone):
            list(store.admin().keys(spec.name))
        assert spec.name not in store.admin().collections()
        store.create(spec)
        assert store.admin().count(spec.name) == 0

    def test_keys_are_paged_completely(self, store: VectorStore, spec: CollectionSpec) -> None:
        expected = {f"{d}.{v}.0" for d in range(1250) for v in (1, 2)}
        store.upsert(spec, [row(key) for key in sorted(expected)])
        pages = list(store.admin().keys(spec.name, 1000))
        assert [len(page) for page in pages] == [1000, 1000, 500]
        every = [key for page in pages for key in page]
        assert len(every) == 2500
        assert set(every) == expected
        assert store.admin().count(spec.name) == 2500
        store.delete(spec, every)
        assert list(store.admin().keys(spec.name)) == []

    def test_the_metric_is_the_one_levels_are_made_of(self, store: VectorStore) -> None:
        before = set(store.admin().collections())
        store.admin().probe_metric()
        assert set(store.admin().collections()) <= before
