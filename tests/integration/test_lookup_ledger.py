"""What a lookup reads from a real PostgreSQL, and the rows it leaves there."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.adapters.ledger.invocations import InvocationLedger, InvocationWriter
from pipeline.adapters.ledger.lookups import LookupLedger
from pipeline.answers import Invocation
from pipeline.documents import Block, Event, Lane, Upload
from pipeline.errors import InfrastructureDown
from pipeline.lexicon import Lexicon
from pipeline.live import Place
from pipeline.receive import receive


@pytest.fixture
def reads(ledgers) -> LookupLedger:
    return LookupLedger(ledgers.engine)


@pytest.fixture
def generation(ledgers):
    return ledgers.generation()


def make_live(ledgers, generation, key: str, body: str = "text", **fields) -> int:
    document = ledgers.put(key, body, **fields).document
    ledgers.prepare()
    ledgers.embed(generation)
    return document


def liveness(reads, generation, documents, tenant="default", **changes):
    asked = {"keys": (), "domain": None, "metadata": {}, "grace": 10.0} | changes
    return reads.liveness(tenant, generation.id, documents, **asked)


def test_nobody_serves_before_the_first_generation(reads):
    assert reads.serving("default") is None


def test_serving_comes_with_its_calibration_and_the_counter(reads, ledgers, generation):
    row = reads.serving("default")
    assert (row.generation, row.calibration, row.change) == (generation, None, 0)
    ledgers.rows(
        "WITH c AS (INSERT INTO calibration (generation, kind, version, model) VALUES (:g, 'identity', 1,"
        ' \'{"kind": "identity"}\') RETURNING id) UPDATE generation SET calibration = (SELECT id FROM c) WHERE id = :g',
        g=generation.id,
    )
    make_live(ledgers, generation, "a")
    row = reads.serving("default")
    assert row.calibration == {"kind": "identity"}
    assert row.change > 0
    assert reads.serving("other").change == 0


def test_live_document_with_what_an_answer_says_of_it(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a", title="A", domain="d", source="https://x")
    found = liveness(reads, generation, [document]).documents[document]
    assert (found.key, found.title, found.domain, found.source) == ("a", "A", "d", "https://x")
    assert (found.live_version, found.prev_version, found.versions) == (1, None, frozenset({1}))


def test_other_tenant_kind_domain_metadata_and_generation_are_left_out(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a", domain="d", metadata={"team": "sre", "tier": 1})
    event = Event(at=datetime.now(UTC), blocks=(Block(type="text", text="said"),))
    episode = receive(ledgers.documents, "default", Upload(key="e", events=(event,)), Lane.LIVE).document
    ledgers.prepare()
    ledgers.embed(generation)
    assert set(liveness(reads, generation, [document, episode]).documents) == {document}
    assert not liveness(reads, generation, [document], tenant="other").documents
    assert not liveness(reads, generation, [document], domain="e").documents
    assert liveness(reads, generation, [document], domain="d").documents
    assert liveness(reads, generation, [document], metadata={"team": "sre"}).documents
    assert not liveness(reads, generation, [document], metadata={"team": "dba"}).documents
    assert not liveness(reads, replace(generation, id=generation.id + 1), [document]).documents


def test_document_by_key_of_the_own_tenant_only(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a")
    make_live(ledgers, generation, "a", tenant="other")
    assert set(liveness(reads, generation, [], keys=["a"]).documents) == {document}


def test_deleted_document_is_gone_at_once(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a")
    ledgers.documents.delete("default", "a")
    assert not liveness(reads, generation, [document]).documents


def test_previous_version_is_acceptable_for_the_grace_only(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a", "one", title="Old")
    make_live(ledgers, generation, "a", "two", title="New")
    found = liveness(reads, generation, [document]).documents[document]
    assert (found.versions, found.title) == (frozenset({1, 2}), "New")
    assert liveness(reads, generation, [document], grace=0.0).documents[document].versions == frozenset({2})
    texts = reads.excerpts([Place(document=document, version=v, start=0, length=99) for v in (1, 2)])
    assert {k[1]: e.text for k, e in texts.items()} == {1: "one", 2: "two"}


def test_version_in_flight_is_pending_and_the_old_one_goes_on(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a", "one", domain="d")
    assert liveness(reads, generation, [document]).pending == 0
    ledgers.put("a", "two", domain="d")
    ledgers.put("b", "new", domain="d")
    ledgers.put("c", "new", domain="e")
    ledgers.put("d", "new", domain="d", tenant="other")
    assert liveness(reads, generation, [], domain="d").pending == 2
    assert liveness(reads, generation, []).pending == 3
    ledgers.prepare()
    assert liveness(reads, generation, [], domain="d").pending == 2
    assert liveness(reads, generation, [document]).documents[document].versions == frozenset({1})
    ledgers.embed(generation)
    assert liveness(reads, generation, []).pending == 0


def test_excerpt_says_where_it_stands(reads, ledgers, generation):
    body = "第一行\n第二行 👩‍💻\n第三行\n" + "尾" * 50
    document = make_live(ledgers, generation, "a", body)
    at = body.index("第三行")
    found = reads.excerpts([Place(document=document, version=1, start=at, length=3)])[document, 1]
    assert (found.text, found.offset, found.first_line, found.length) == ("第三行", at, 3, len(body))
    assert not found.whole
    whole = reads.excerpts([Place(document=document, version=1, start=0, length=1000)])[document, 1]
    assert whole.whole and whole.text == body
    assert reads.excerpts([Place(document=document, version=9, start=0, length=3)]) == {}


def test_names_are_those_of_the_live_version_and_changes_since(reads, ledgers, generation):
    first = make_live(ledgers, generation, "a", title="A", keywords=("K-1",))
    waiting = ledgers.put("b", "body", title="B").document
    changes = reads.names("default", generation.id, None)
    assert {n.document: (n.version, n.title, n.keywords) for n in changes.names} == {
        first: (1, "A", ("K-1",)),
        waiting: (None, "", ()),
    }
    # The mark lies a minute back: rows stamped before, committed after.
    ledgers.rows("UPDATE document SET updated_at = updated_at - interval '1 hour'")
    ledgers.rows("UPDATE embedding SET flipped_at = flipped_at - interval '1 hour'")
    assert reads.names("default", generation.id, changes.mark).names == []
    ledgers.documents.delete("default", "a")
    assert [(n.document, n.version) for n in reads.names("default", generation.id, changes.mark).names] == [
        (first, None)
    ]
    assert reads.names("other", generation.id, None).names == []


def test_lexicon_follows_flips_deletes_and_keywords(reads, ledgers, generation):
    lexicon = Lexicon(reads, "default")

    def named(question: str) -> set[int]:
        row = reads.serving("default")
        lexicon.refresh(row.generation.id, row.change, wait=True)
        return set(lexicon.match(question).documents)

    assert named("ERR_TIMEOUT") == set()
    first = make_live(ledgers, generation, "a", "returns ERR_TIMEOUT", title="Gateway")
    assert named("what is ERR_TIMEOUT") == {first}
    ledgers.put("a", "returns ERR_TIMEOUT", title="Gateway", keywords=("网关超时",))
    assert named("网关超时怎么办") == {first}
    ledgers.put("a", "returns ERR_OTHER now", title="Gateway 2", keywords=("网关超时",))
    assert named("ERR_OTHER") == set(), "not searchable yet"
    make_live(ledgers, generation, "b", "nothing")
    assert named("ERR_OTHER") == {first}
    assert named("ERR_TIMEOUT") == set()
    ledgers.documents.delete("default", "a")
    assert named("网关超时") == set()


def test_lexicon_starts_over_with_another_generation(reads, ledgers, generation):
    document = make_live(ledgers, generation, "a", title="Gateway")
    lexicon = Lexicon(reads, "default")
    lexicon.refresh(generation.id, 1, wait=True)
    assert lexicon.match("gateway").documents == {document}
    lexicon.refresh(generation.id + 1, 1, wait=True)
    assert lexicon.match("gateway").documents == frozenset()


# tool_invocation


def invocation(number: int = 0, **changes) -> Invocation:
    made = Invocation(
        id=f"{number:036d}",
        tenant="default",
        session_id="s",
        tool_name="lookup_knowledge",
        query="问题",
        relevance_level="PRECISE",
        dedup_reason=None,
        retrieval_details={"l1_top_score": 0.383, "l0_titles": ["数据库"]},
        generation=1,
        calibration=None,
        latency_ms={"total": 1.5},
        at=datetime.now(UTC),
    )
    return replace(made, **changes)


def count(ledgers) -> int:
    return ledgers.rows("SELECT count(*) AS n FROM tool_invocation")[0]["n"]


def test_every_row_is_there_after_a_clean_stop(ledgers):
    writer = InvocationWriter(InvocationLedger(ledgers.engine), capacity=10)
    threads = [
        threading.Thread(target=lambda s=s: [writer.put(invocation(s * 100 + i)) for i in range(50)]) for s in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close() == 0
    assert count(ledgers) == 200
    row = ledgers.rows("SELECT * FROM tool_invocation LIMIT 1")[0]
    assert (row["query"], row["relevance_level"], row["dedup_reason"]) == ("问题", "PRECISE", None)
    assert row["retrieval_details"]["l0_titles"] == ["数据库"]
    assert row["latency_ms"] == {"total": 1.5}


def test_flush_waits_until_rows_are_written(ledgers):
    writer = InvocationWriter(InvocationLedger(ledgers.engine))
    writer.put(invocation(1))
    writer.flush()
    assert count(ledgers) == 1
    assert writer.close() == 0


def test_refused_row_does_not_hold_the_others_back(ledgers):
    ledger = InvocationLedger(ledgers.engine)
    writer = InvocationWriter(ledger)
    for i in range(5):
        writer.put(invocation(i, query="a\0b" if i == 2 else "fine"))
    writer.flush()
    assert count(ledgers) == 4
    assert writer.close() == 0


class Broken:
    """Refuses until it is let go."""

    def __init__(self, ledger: InvocationLedger) -> None:
        self.let_go = threading.Event()
        self.refused = threading.Event()
        self._ledger = ledger

    def write(self, invocations) -> None:
        if not self.let_go.is_set():
            self.refused.set()
            raise InfrastructureDown("gone", part="postgresql")
        self._ledger.write(invocations)


def test_rows_wait_for_postgresql_and_a_full_buffer_blocks(ledgers):
    broken = Broken(InvocationLedger(ledgers.engine))
    writer = InvocationWriter(broken, capacity=1, retry_seconds=0.01)
    writer.put(invocation(0))
    assert broken.refused.wait(10)
    writer.put(invocation(1))
    third = threading.Thread(target=writer.put, args=(invocation(2),))
    third.start()
    third.join(0.2)
    assert third.is_alive(), "the third waits: one row is being written, one is buffered"
    broken.let_go.set()
    third.join(10)
    writer.flush()
    assert count(ledgers) == 3
    assert writer.close() == 0


def test_close_says_how_many_could_not_be_written(ledgers):
    writer = InvocationWriter(Broken(InvocationLedger(ledgers.engine)), retry_seconds=0.01)
    for i in range(3):
        writer.put(invocation(i))
    assert writer.close(timeout=0.2) == 3
    assert count(ledgers) == 0
