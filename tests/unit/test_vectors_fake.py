from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.adapters import milvus_rules as rules
from pipeline.errors import InfrastructureDown, InvalidInput
from pipeline.ports import CollectionSpec, Scope, VectorStore, VectorStoreAdmin
from tests.contracts_vectors import SCOPE, VectorStoreContract, ask, row
from tests.fakes_vectors import InMemoryVectors

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


class TestInMemoryVectors(VectorStoreContract):
    @pytest.fixture
    def store(self) -> VectorStore:
        return InMemoryVectors()


def test_the_fake_is_both_sides_of_the_store() -> None:
    fake = InMemoryVectors()
    store: VectorStore = fake
    admin: VectorStoreAdmin = fake
    assert store.admin() is admin


def test_the_fake_can_be_down_wiped_and_old() -> None:
    spec = CollectionSpec(name="c", space="m:8:a", dimension=8)
    fake = InMemoryVectors(lexical=False)
    fake.create(spec)
    fake.upsert(spec, [row()])
    assert fake.search(spec, ask(), "连接池", SCOPE, 3).lexical is None
    fake.down = True
    with pytest.raises(InfrastructureDown):
        fake.search(spec, ask(), "", SCOPE, 3)
    fake.down = False
    fake.wipe()
    assert fake.collections() == []


def read_literal(source: str) -> tuple[str, str]:
    """What a parser of C-like string literals reads at the start of ``source``, and the rest."""
    assert source[0] == '"'
    read, at = [], 1
    while source[at] != '"':
        assert source[at] not in "\r\n", "a raw newline ends no literal"
        if source[at] == "\\":
            at += 1
            read.append({"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}[source[at]])
        else:
            read.append(source[at])
        at += 1
    return "".join(read), source[at + 1 :]


@given(ANY_TEXT)
def test_a_quoted_value_reads_back_as_itself(value: str) -> None:
    assert read_literal(rules.quote(value)) == (value, "")


@given(*[ANY_TEXT.filter(bool)] * 3)
def test_no_value_leaves_its_place_in_a_filter(tenant: str, kind: str, domain: str) -> None:
    rest = rules.scope_filter(Scope(tenant=tenant, kind=kind, domain=domain))
    for name, value in (("tenant", tenant), (" and kind", kind), (" and domain", domain)):
        assert rest.startswith(f"{name} == ")
        read, rest = read_literal(rest.removeprefix(f"{name} == "))
        assert read == value
    assert rest == ""


@given(ANY_TEXT, st.integers(0, 40))
def test_clipping_keeps_the_longest_whole_start(text: str, limit: int) -> None:
    kept = rules.clip(text, limit)
    assert text.startswith(kept)
    assert len(kept.encode()) <= limit
    if kept != text:
        assert len(text[: len(kept) + 1].encode()) > limit


@given(st.lists(ANY_TEXT, max_size=6), st.integers(1, 4000))
def test_headings_fit_their_field(headings: list[str], times: int) -> None:
    stored = rules.encode_headings([h * times for h in headings])
    assert len(stored.encode()) <= rules.MAX_HEADINGS_BYTES
    assert isinstance(rules.decode_headings(stored), tuple)
    assert times > 1 or rules.decode_headings(stored) == tuple(headings)


def test_too_many_and_hostile_headings_still_fit() -> None:
    for headings in (["x"] * 20_000, ["\x01" * 9_000] * 3, ["😀" * 3_000] * 3):
        stored = rules.encode_headings(headings)
        assert len(stored.encode()) <= rules.MAX_HEADINGS_BYTES
        assert headings[0].startswith(rules.decode_headings(stored)[0][:1])


def test_calls_stay_below_the_server_limits() -> None:
    small = [row(f"{i}.1.0") for i in range(2_500)]
    assert [len(c) for c in rules.chunks(small)] == [1000, 1000, 500]
    wide = np.zeros(4096, dtype=np.float32)
    big = [row(f"{i}.1.0", wide, text="字" * 30_000) for i in range(500)]
    calls = list(rules.chunks(big))
    assert [r.key for c in calls for r in c] == [r.key for r in big]
    assert all(sum(rules.row_bytes(r) for r in c) <= rules.MAX_CALL_BYTES for c in calls)
    assert list(rules.chunks([])) == []


def test_an_impossible_key_is_refused() -> None:
    for key in ("", "1" * 65, "a\x00", "\ud800"):
        with pytest.raises(InvalidInput):
            rules.check_keys([key])
