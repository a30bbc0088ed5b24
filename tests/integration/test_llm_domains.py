"""Domains: which are dirty, when they are due, what one summary includes, and how they come and go."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from pipeline.domains import DomainPace, DomainRecord
from pipeline.prompts import RULE
from pipeline.writing import Summary

PACE = DomainPace(quiet=0, wait=300, calls=3)
BODY = "text of a document about {}"


@pytest.fixture(autouse=True)
def generation(ledgers):
    return ledgers.generation()


def put(ledgers, key, domain="pay", body=None, **fields):
    ledgers.put(key, body or BODY.format(key), domain=domain, **fields)
    ledgers.prepare()


def domain(ledgers, name="pay", tenant="default"):
    found = ledgers.rows("SELECT * FROM knowledge_domain WHERE domain_id = :d AND tenant = :t", d=name, t=tenant)
    return found[0] if found else None


def changes(ledgers, name="pay"):
    return ledgers.rows("SELECT count(*) AS n FROM domain_change WHERE domain_id = :d", d=name)[0]["n"]


def domain_calls(llm_server):
    return [p for p in llm_server.prompts() if p.startswith("<domain")]


def settled(side):
    """Everything described and summarised."""
    while side.describe() or side.refresh():
        pass


def age(ledgers, seconds):
    ledgers.rows("UPDATE domain_change SET at = at - make_interval(secs => :s)", s=seconds)


def record(text):
    return DomainRecord(
        summary=Summary(description=text, when_to_retrieve="x"),
        document_count=1,
        input_hash=text,
        writer="llm",
        fingerprint="f",
        called=True,
    )


def test_a_summary_from_what_documents_say_of_themselves(ledgers, llm_side, llm_server):
    put(
        ledgers,
        "a",
        title="Refunds",
        summary="How money goes back.",
        covers=("late refunds",),
        when_to_retrieve="a refund is late",
    )
    put(ledgers, "b", title="Chargebacks")
    side = llm_side()
    settled(side)
    (prompt,) = domain_calls(llm_server)
    for text in ("Refunds", "How money goes back.", "late refunds", "a refund is late", "Chargebacks", "timeouts"):
        assert text in prompt
    assert "text of a document" not in prompt
    row = domain(ledgers)
    assert row["description"].startswith("domain summary")
    assert row["when_to_retrieve"].endswith(RULE["en"])
    assert (row["document_count"], row["writer"], row["dirty_since"]) == (2, "llm", None)
    assert row["updated_at"] and row["created_at"] and row["prompt_version"] == "describe-1+domain-1"
    assert changes(ledgers) == 0 and ledgers.rows("SELECT * FROM claim") == []


def test_a_chinese_domain_ends_with_the_rule_of_the_original(ledgers, llm_side):
    put(ledgers, "a", title="支付失败排查手册", covers=("支付超时",), when_to_retrieve="用户描述支付失败")
    settled(llm_side())
    assert domain(ledgers)["when_to_retrieve"].endswith("；优先检索一次，勿重复")


def test_a_description_longer_than_256_is_cut_between_sentences(ledgers, llm_side, llm_server):
    text = "支付链路的问题排查。" * 60
    llm_server.script(
        {"kind": "say", "match": "<domain", "text": f'{{"description": "{text}", "when_to_retrieve": "支付"}}'}
    )
    put(ledgers, "a", title="支付失败排查手册", body="支付失败时先查日志")
    settled(llm_side())
    description = domain(ledgers)["description"]
    assert 200 < len(description) <= 256 and description.endswith("。")


def test_only_the_affected_domains_are_summarised(ledgers, llm_side, llm_server):
    for name in ("pay", "infra", "hr"):
        put(ledgers, f"{name}/a", name)
    side = llm_side()
    settled(side)
    llm_server.forget()
    ledgers.put("pay/a", BODY.format("pay/a"), domain="infra", title="moved")
    ledgers.prepare()
    settled(side)
    assert domain(ledgers, "pay") is None, "an emptied domain disappears"
    assert domain(ledgers, "infra")["document_count"] == 2
    assert len(domain_calls(llm_server)) == 1 and "moved" in domain_calls(llm_server)[0]


def test_quiet_time_and_longest_wait(ledgers, llm_side, llm_server):
    put(ledgers, "a")
    side = llm_side(llm_domain_quiet_seconds=10.0, llm_domain_wait_seconds=300.0)
    side.describe()
    assert side.refresh() == 0, "it changed just now"
    age(ledgers, 11)
    assert side.refresh() == 1
    put(ledgers, "b")
    age(ledgers, 301)
    put(ledgers, "c")
    assert side.refresh() == 1, "a steady trickle does not starve it"
    assert len(domain_calls(llm_server)) == 2


def test_no_more_calls_than_allowed_within_the_longest_wait(ledgers, llm_side, llm_server):
    side = llm_side()
    for i in range(6):
        put(ledgers, f"d{i}", covers=("c",), when_to_retrieve="w")
        side.refresh()
    assert len(domain_calls(llm_server)) == 3
    assert changes(ledgers) > 0
    ledgers.rows(
        "UPDATE knowledge_domain SET called_at = ARRAY(SELECT c - interval '5 minutes' FROM unnest(called_at) c)"
    )
    assert side.refresh() == 1
    assert domain(ledgers)["document_count"] == 6 and changes(ledgers) == 0


def test_a_change_that_alters_nothing_in_the_input_makes_no_call(ledgers, llm_side, llm_server):
    put(ledgers, "a", title="A")
    side = llm_side()
    settled(side)
    llm_server.forget()
    put(ledgers, "a", title="A", keywords=("new",))
    assert changes(ledgers) == 1
    settled(side)
    assert llm_server.calls() == [] and changes(ledgers) == 0


def test_what_changes_while_the_model_writes_makes_the_domain_due_again(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    claimed = side.parts.domains.claim_domain(PACE, 60)
    documents, total = side.parts.domains.domain_documents(claimed, 100)
    put(ledgers, "b", covers=("c",), when_to_retrieve="w")
    assert side.parts.domains.claim_domain(PACE, 60) is None, "one writer at a time"
    assert side.parts.domains.store_domain(claimed, record("with a only"), PACE)
    assert (total, changes(ledgers)) == (1, 1)
    row = domain(ledgers)
    assert row["description"] == "with a only" and row["dirty_since"] is not None
    assert side.refresh() == 1
    assert domain(ledgers)["document_count"] == 2


def test_a_change_committed_late_under_a_lower_id_is_not_lost(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    side.refresh()
    slow = ledgers.engine.connect()
    transaction = slow.begin()
    slow.execute(sa.text("INSERT INTO domain_change (tenant, domain_id) VALUES ('default', 'pay')"))
    ledgers.rows("INSERT INTO domain_change (tenant, domain_id) VALUES ('default', 'pay')")
    claimed = side.parts.domains.claim_domain(PACE, 60)
    transaction.commit()
    slow.close()
    assert side.parts.domains.store_domain(claimed, record("x"), PACE)
    assert changes(ledgers) == 1


def test_a_late_writer_never_overwrites_a_newer_summary(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    late = side.parts.domains.claim_domain(PACE, -1)
    ledgers.sweeping.lapse_claims(2)
    ledgers.rows("UPDATE knowledge_domain SET not_before = clock_timestamp()")
    fresh = side.parts.domains.claim_domain(PACE, 60)
    assert fresh.changes == late.changes
    assert not side.parts.domains.store_domain(late, record("old"), PACE)
    assert side.parts.domains.store_domain(fresh, record("new"), PACE)
    assert not side.parts.domains.store_domain(late, record("old"), PACE)
    assert domain(ledgers)["description"] == "new"
    assert ledgers.rows("SELECT * FROM claim") == []


def test_the_domain_of_a_killed_worker_is_free_again(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    side.parts.domains.claim_domain(PACE, 600)
    ledgers.rows("UPDATE claim SET pid = 999999")
    ledgers.rows("UPDATE knowledge_domain SET not_before = clock_timestamp()")
    assert side.refresh() == 0
    ledgers.sweeping.lapse_claims(2, [999999])
    assert side.refresh() == 1
    assert changes(ledgers) == 0


def test_two_workers_summarise_each_domain_once(ledgers, llm_side, llm_server):
    for i in range(10):
        put(ledgers, f"d{i}", f"domain{i}", covers=("c",), when_to_retrieve="w")
    llm_server.script(latency=0.05)
    sides = [llm_side(), llm_side()]
    threads = [threading.Thread(target=s.refresh) for s in sides]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(domain_calls(llm_server)) == 10
    assert ledgers.rows("SELECT count(*) AS n FROM domain_change") == [{"n": 0}]


def test_a_domain_without_a_record_is_made_at_the_first_tick(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    ledgers.rows("DELETE FROM knowledge_domain")
    ledgers.rows("DELETE FROM domain_change")
    side = llm_side()
    assert side.refresh() == 0
    side.parts.tick()
    assert side.refresh() == 1
    assert domain(ledgers)["description"]


def test_an_upload_in_flight_while_the_emptied_domain_goes_makes_it_again(ledgers, llm_side):
    put(ledgers, "a")
    ledgers.documents.delete("default", "a")
    side = llm_side()
    slow = ledgers.engine.connect()
    transaction = slow.begin()
    slow.execute(
        sa.text(
            "INSERT INTO document (tenant, key, kind, domain, version) VALUES ('default', 'b', 'article', 'pay', 1)"
        )
    )
    slow.execute(sa.text("INSERT INTO domain_change (tenant, domain_id) VALUES ('default', 'pay')"))
    slow.execute(
        sa.text("INSERT INTO knowledge_domain (tenant, domain_id) VALUES ('default', 'pay') ON CONFLICT DO NOTHING")
    )
    side.parts.tick()
    assert domain(ledgers) is None
    transaction.commit()
    slow.close()
    side.parts.tick()
    assert domain(ledgers)["document_count"] == 1 and changes(ledgers) == 1


def test_counts_and_deletions_show_without_the_model(ledgers, llm_side, llm_server):
    side = llm_side(llm_calls_per_hour=0)
    for i in range(3):
        put(ledgers, f"d{i}", title=f"T{i}")
    side.parts.tick()
    assert domain(ledgers)["document_count"] == 3
    assert side.parts.maps.of("default").json["available_knowledge_domains"][0]["documents_not_listed"] == 0
    ledgers.documents.delete("default", "d1")
    side.parts.tick()
    assert domain(ledgers)["document_count"] == 2
    titles = [d["title"] for d in side.parts.maps.of("default").json["available_knowledge_domains"][0]["documents"]]
    assert sorted(titles) == ["T0", "T2"]
    for key in ("d0", "d2"):
        ledgers.documents.delete("default", key)
    side.parts.tick()
    assert domain(ledgers) is None and changes(ledgers) == 0
    assert side.parts.maps.of("default").yaml == "available_knowledge_domains: []\n"
    assert llm_server.calls() == []


def test_a_domain_the_model_cannot_summarise_is_given_its_documents_own_words(ledgers, llm_side, llm_server):
    llm_server.script({"kind": "schema", "match": "<domain"})
    put(ledgers, "a", title="Refunds", covers=("late refunds",), when_to_retrieve="w")
    side = llm_side(max_errors=2, llm_domain_calls=10)
    for _ in range(4):
        side.refresh()
        ledgers.rows("UPDATE knowledge_domain SET not_before = clock_timestamp()")
    row = domain(ledgers)
    assert (row["writer"], row["description"]) == ("extractive", "Refunds")
    assert row["when_to_retrieve"] == f"late refunds; {RULE['en']}"
    assert len(llm_server.calls()) == 4, "two tries of two calls, then no more"
    llm_server.script()
    put(ledgers, "b", title="Payouts", covers=("late payouts",), when_to_retrieve="w")
    side.refresh()
    assert domain(ledgers)["writer"] == "llm"


def test_an_outage_leaves_the_domain_dirty_and_uncounted(ledgers, llm_side, llm_server):
    llm_server.script({"kind": "500", "times": 10})
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    for _ in range(10):
        side.refresh()
        ledgers.rows("UPDATE knowledge_domain SET not_before = clock_timestamp()")
    assert domain(ledgers)["errors"] == 0 and changes(ledgers) == 1
    assert "LlmDown" in domain(ledgers)["last_error"]
    side.refresh()
    assert changes(ledgers) == 0 and domain(ledgers)["last_error"] is None


def test_without_an_endpoint_titles_and_covers_verbatim_then_the_model(ledgers, llm_side, llm_server):
    put(ledgers, "a", title="支付失败排查手册", covers=("支付超时", "扣款无回调"), when_to_retrieve="用户描述支付失败")
    put(ledgers, "b", title="退款处理指南", covers=("支付超时",), when_to_retrieve="用户询问退款")
    plain = llm_side(llm_base_url="")
    settled(plain)
    row = domain(ledgers)
    assert sorted(row["description"].split("；")) == ["支付失败排查手册", "退款处理指南"]
    assert row["when_to_retrieve"] == "支付超时；扣款无回调；优先检索一次，勿重复"
    assert row["writer"] == "extractive"
    side = llm_side()
    for _ in range(3):
        side.parts.tick()
        settled(side)
        ledgers.rows("UPDATE llm_window SET minute = minute - interval '1 minute'")
    assert domain(ledgers)["writer"] == "llm"


def test_one_tenant_never_shows_in_anothers_domain(ledgers, llm_side, llm_server):
    put(ledgers, "a", title="Mine", covers=("c",), when_to_retrieve="w")
    ledgers.put("a", "secret", tenant="other", domain="pay", title="Theirs", covers=("x",), when_to_retrieve="y")
    side = llm_side()
    settled(side)
    assert all(("Mine" in p) != ("Theirs" in p) for p in domain_calls(llm_server))
    side.parts.tick()
    assert "Theirs" not in side.parts.maps.of("default").yaml
    assert "Theirs" in side.parts.maps.of("other").yaml
    assert side.parts.maps.of("nobody").json["available_knowledge_domains"] == []


def test_refresh_by_hand(ledgers, llm_side):
    put(ledgers, "a", covers=("c",), when_to_retrieve="w")
    side = llm_side()
    side.refresh()
    assert side.parts.map_ledger.refresh("default", ["pay", "no such"]) == ["pay"]
    (view,) = side.parts.map_ledger.domain_views("default")
    assert (view.domain_id, view.document_count, view.changes) == ("pay", 1, 1)
    assert side.refresh() == 1


def test_the_map_follows_a_commit_and_is_kept_otherwise(ledgers, llm_side):
    put(ledgers, "a", title="Refunds", covers=("late refunds",), when_to_retrieve="only for the executor")
    side = llm_side()
    side.parts.tick()
    first = side.parts.maps.of("default")
    assert side.parts.maps.of("default") is first
    assert "executor" not in first.yaml and "executor" not in str(first.json)
    side.refresh()
    second = side.parts.maps.of("default")
    assert second.etag != first.etag and "domain summary" in second.yaml
    assert '- title: "Refunds"' in second.yaml and 'covers: ["late refunds"]' in second.yaml
