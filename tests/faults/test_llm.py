"""Workers of the LLM queue are killed in the middle of calls, and the broker is emptied: nothing stays undescribed."""

from __future__ import annotations

import hashlib
import random
import time

from pipeline.documents import Lane, Upload
from pipeline.domains import READ_DOCUMENTS, ClaimedDomain
from pipeline.receive import receive
from pipeline.writing import DomainTexts
from tests.faults.harness import ROUNDS

DOMAINS = 4
SETTINGS = {
    "llm_model": "scripted",
    "llm_domain_quiet_seconds": 1.0,
    "llm_domain_calls": 100,
    "llm_timeout_seconds": 5.0,
}


def upload(fleet, number, words="first"):
    body = f"# Case {number}\n\nWhat to do in case {number}, {words}.\n"
    wanted = Upload(key=f"d{number}", body=body, domain=f"domain{number % DOMAINS}", title=f"Case {number} {words}")
    receive(fleet.parts.documents, "default", wanted, Lane.LIVE)


def finished(fleet):
    left = fleet.one(
        "SELECT (SELECT count(*) FROM describe_job) + (SELECT count(*) FROM prepare_job)"
        " + (SELECT count(*) FROM domain_change) + (SELECT count(*) FROM claim WHERE queue = 'llm')"
        " + (SELECT count(*) FROM document WHERE described_version IS DISTINCT FROM version) AS n"
    )
    return left == 0


def expected_summary(fleet, row):
    """What the scripted model answers to the domain as it is now."""
    claimed = ClaimedDomain(
        id=row["id"],
        token=0,
        tenant="default",
        domain_id=row["domain_id"],
        changes=(),
        input_hash=None,
        described=True,
        errors=0,
    )
    documents, total = fleet.parts.llm.domains.domain_documents(claimed, READ_DOCUMENTS)
    texts = DomainTexts(tenant="default", domain_id=row["domain_id"], documents=tuple(documents), total=total)
    data = fleet.parts.llm.writer.domain_data(texts)
    return f"domain summary {hashlib.sha256(data.encode()).hexdigest()[:8]}"


def test_killed_llm_workers_and_a_flushed_broker_leave_no_domain_dirty_and_no_stale_summary(make_fleet, llm_server):
    dice = random.Random(7)
    llm_server.script(latency=0.15)
    fleet = make_fleet(llm_base_url=llm_server.url, **SETTINGS)
    fleet.start("light", "light2", "beat")
    for i in range(40):
        upload(fleet, i)
    fleet.wait("the first call", lambda: llm_server.calls())
    for turn in range(2 * ROUNDS):
        time.sleep(dice.uniform(0.3, 2.0))
        victim = ("light", "light2")[turn % 2]
        fleet.kill(victim)
        for i in dice.sample(range(40), 5):
            upload(fleet, i, f"round {turn}")
        if turn == ROUNDS:
            fleet.redis().flushall()
        fleet.start(victim)
    fleet.wait("every document described and every domain summarised", lambda: finished(fleet))
    rows = fleet.sql("SELECT key, covers, when_to_retrieve, writer FROM document")
    assert len(rows) == 40 and all(r["covers"] and r["when_to_retrieve"] and r["writer"] == "llm" for r in rows)
    domains = fleet.sql("SELECT * FROM knowledge_domain ORDER BY domain_id")
    assert [d["document_count"] for d in domains] == [10] * DOMAINS
    assert {d["domain_id"]: d["description"] for d in domains} == {
        d["domain_id"]: expected_summary(fleet, d) for d in domains
    }
    assert all(d["dirty_since"] is None and d["errors"] == 0 for d in domains)
