"""Uploads become versions, or are unchanged, or are refused; a batch leaves what single uploads leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from pipeline.documents import Block, Event, Lane, State, Upload
from pipeline.errors import Conflict, NotFound, PreconditionFailed
from pipeline.receive import receive, receive_many

MEANINGLESS = (
    "'id', 'document', 'tenant', 'at', 'created_at', 'updated_at', 'not_before', 'dirty_since', 'last_change_at'"
)
TABLES = ("document", "document_version", "prepare_job", "domain_change", "knowledge_domain", "change_counter")


def test_same_text_is_unchanged_and_makes_no_work(ledgers):
    ledgers.generation()
    first = ledgers.put("a", "text")
    assert (first.version, first.changed) == (1, True)
    again = ledgers.put("a", "text")
    assert (again.version, again.changed) == (1, False)
    assert ledgers.rows("SELECT count(*) AS n FROM document_version")[0]["n"] == 1


def test_metadata_changes_update_the_row_and_embed_nothing(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text", domain="x")
    ledgers.prepare()
    ledgers.embed(generation)
    assert not ledgers.put("a", "text", domain="x", keywords=("ERR_1",)).changed
    assert ledgers.rows("SELECT count(*) AS n FROM prepare_job")[0]["n"] == 0
    assert not ledgers.put("a", "text", domain="y", keywords=("ERR_1",)).changed
    view = ledgers.documents.view("default", "a")
    assert (view.domain, view.keywords, view.version, view.state) == ("y", ["ERR_1"], 1, State.SEARCHABLE)
    assert {r["domain_id"] for r in ledgers.rows("SELECT DISTINCT domain_id FROM domain_change")} == {"x", "y"}


def test_delete_and_upload_again_goes_on_counting(ledgers):
    ledgers.generation()
    ledgers.put("a", "one")
    ledgers.documents.delete("default", "a")
    with pytest.raises(NotFound):
        ledgers.documents.delete("default", "a")
    again = ledgers.put("a", "one")
    assert (again.version, again.changed) == (3, True)


def test_preconditions_and_revisions_keep_a_late_retry_from_restoring_an_old_text(ledgers):
    ledgers.generation()
    ledgers.put("a", "two", revision=2)
    with pytest.raises(Conflict, match="revision 1"):
        ledgers.put("a", "one", revision=1)
    assert not ledgers.put("a", "two", revision=2).changed
    with pytest.raises(PreconditionFailed):
        receive(ledgers.documents, "default", Upload(key="a", body="x"), Lane.LIVE, expected_version=7)
    with pytest.raises(PreconditionFailed):
        ledgers.documents.delete("default", "a", expected_version=7)


def test_covers_that_the_source_withdraws_are_written_again(ledgers):
    generation = ledgers.generation()
    ledgers.put("a", "text", covers=("given",))
    ledgers.prepare()
    ledgers.embed(generation)
    ledgers.rows("UPDATE document SET described_version = 1")
    ledgers.rows("DELETE FROM describe_job")
    assert not ledgers.put("a", "text").changed
    assert ledgers.rows("SELECT version, state FROM describe_job") == [{"version": 1, "state": "pending"}]
    assert ledgers.rows("SELECT described_version FROM document") == [{"described_version": None}]


def uploads() -> list[Upload]:
    event = Event(at=datetime(2026, 1, 2, tzinfo=UTC), source="chat", blocks=(Block(type="text", text="hello"),))
    return [
        Upload(key="b", title="B", body="text of b", domain="two", keywords=("k",), covers=("given",), revision=3),
        Upload(key="a", body="text of a", domain="one", when_to_retrieve="when asked", metadata={"x": 1}),
        Upload(key="c", events=(event,), domain="one", summary="s", source="import"),
    ]


def left_by(ledgers, tenant: str) -> dict[str, list]:
    """Every row of the tenant without ids and times."""
    owned = "t.tenant = :tenant"
    of_document = "t.document IN (SELECT id FROM document WHERE tenant = :tenant)"
    return {
        table: [
            r["row"]
            for r in ledgers.rows(
                f"SELECT to_jsonb(t) - ARRAY[{MEANINGLESS}] AS row FROM {table} t"
                f" WHERE {of_document if table == 'document_version' else owned} ORDER BY 1",
                tenant=tenant,
            )
        ]
        for table in TABLES
    }


def test_a_batch_of_new_documents_leaves_what_single_uploads_leave(ledgers):
    ledgers.generation()
    for upload in uploads():
        receive(ledgers.documents, "single", upload, Lane.LIVE)
    received = list(receive_many(ledgers.documents, "batch", uploads(), Lane.LIVE))
    assert [(r.key, r.version, r.changed) for r in received] == [("b", 1, True), ("a", 1, True), ("c", 1, True)]
    single, batch = left_by(ledgers, "single"), left_by(ledgers, "batch")
    # A cache counts whether it changed, not how often.
    assert (single.pop("change_counter"), batch.pop("change_counter")) == (
        [{"name": "l0", "value": 3}],
        [{"name": "l0", "value": 1}],
    )
    assert batch == single
    assert all(batch.values())


def test_new_changed_and_unchanged_documents_go_together_in_one_batch(ledgers):
    ledgers.generation()
    for key in ("same", "edited", "gone"):
        ledgers.put(key, f"{key} first")
    ledgers.documents.delete("default", "gone")
    batch = [
        Upload(key="edited", body="edited second"),
        Upload(key="new", body="new first"),
        Upload(key="same", body="same first"),
        Upload(key="gone", body="gone first"),
    ]
    received = list(receive_many(ledgers.documents, "default", batch, Lane.LIVE))
    assert [(r.key, r.version, r.changed) for r in received] == [
        ("edited", 2, True),
        ("new", 1, True),
        ("same", 1, False),
        ("gone", 3, True),
    ]


def test_two_batches_with_the_same_new_documents_wait_for_each_other_and_store_each_once(ledgers):
    ledgers.generation()
    forth = [Upload(key=f"{i:03}", body=f"text {i}", domain=f"d{i % 3}") for i in range(200)]
    with ThreadPoolExecutor(4) as pool:
        batches = [forth, forth[::-1], forth[50:], forth[::-2]]
        answers = list(pool.map(lambda b: list(receive_many(ledgers.documents, "default", b, Lane.LIVE)), batches))
    assert {r.version for answer in answers for r in answer} == {1}
    assert sum(r.changed for answer in answers for r in answer) == 200
    assert ledgers.rows("SELECT count(*) AS n FROM document_version")[0]["n"] == 200
