"""The hook through which action memory decides what a lookup hands out."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pipeline.handout import Ask, Grant, Handout, Refusal
from pipeline.relevance import Level
from tests.fakes import HashEmbedder
from tests.fakes_lookup import World, ask


class Remembering:
    """Hands every document out once, whoever asks."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.seen: set[int] = set()

    def hand_out(self, ask: Ask) -> Handout:
        self.asked.append(ask)
        granted = [o.document for o in ask.ranked if o.document not in self.seen or o.key in ask.refetch][: ask.limit]
        if ask.ranked and ask.ranked[0].document not in granted:
            granted = []  # no dripping through leftovers
        refused = [Refusal(document=o.document, reason="doc_retrieved") for o in ask.ranked if o.document in self.seen]
        self.seen |= set(granted)
        return Handout(
            granted=tuple(Grant(document=d) for d in granted),
            refused=tuple(r for r in refused if r.document not in granted),
            domains=("payments",),
        )


@pytest.fixture
def remembering(world) -> tuple[World, Remembering]:
    memory = Remembering()
    world._memory = memory
    world.lookups = world.lookup_of("default")
    return world, memory


def test_what_was_handed_out_comes_back_as_deduped_without_its_text(remembering):
    world, _ = remembering
    ask(world, "PAY-4031", session_id="s")
    answer = ask(world, "PAY-4031", session_id="s")
    assert (answer.found, answer.relevance_level, answer.primary, answer.supplement) == (
        True, Level.DEDUPED, None, (),
    )  # fmt: skip
    assert [(d.key, d.domain, d.reason) for d in answer.deduped] == [("pay/refunds", "payments", "doc_retrieved")]
    assert answer.retrieved_domains_this_session == ("payments",)
    assert world.invocations[-1].dedup_reason == "doc_retrieved"
    assert "ninety days" not in json.dumps(dataclasses.asdict(answer), default=str)


def test_exactly_what_memory_granted_is_shown(remembering):
    world, memory = remembering
    world.put("pay/other", "Also about it.", title="Other", domain="payments", keywords=["PAY-4031"])
    ask(world, "PAY-4031", session_id="s")
    best, other = (o.document for o in memory.asked[-1].ranked[:2])
    memory.seen = {best}
    answer = ask(world, "PAY-4031", session_id="s")
    assert (answer.relevance_level, answer.primary, answer.supplement) == (Level.DEDUPED, None, ())
    assert other not in memory.seen
    memory.seen = {other}
    answer = ask(world, "PAY-4031", session_id="s")
    assert (answer.primary.key, answer.supplement) == (_key(world, best), ())
    assert [d.key for d in answer.deduped] == [_key(world, other)]


def _key(world, number: int) -> str:
    return world.ledger.documents[number].key


def test_memory_gets_the_ranked_answers_and_the_question(remembering):
    world, memory = remembering
    ask(world, "PAY-4031", session_id="s", request_id="r", missing_aspect="deadline")
    asked = memory.asked[-1]
    assert (asked.tenant, asked.session_id, asked.request_id, asked.missing_aspect) == ("default", "s", "r", "deadline")
    assert [(o.key, o.passages) for o in asked.ranked][0] == ("pay/refunds", None)
    assert (asked.domain, asked.level, asked.incomplete) == ("payments", Level.REFERENCE, False)
    assert asked.query.space == HashEmbedder(dimension=512).space.name


def test_empty_answer_is_asked_too_but_marked_incomplete_when_a_part_is_down(remembering):
    world, memory = remembering
    ask(world, "bonsai watering", session_id="s")
    assert (memory.asked[-1].ranked, memory.asked[-1].incomplete) == ((), False)
    world.embedder = None
    ask(world, "bonsai pruning", session_id="s")
    assert memory.asked[-1].incomplete is True


def test_refetched_document_comes_though_the_question_does_not_find_it(remembering):
    world, _ = remembering
    ask(world, "PAY-4031", session_id="s")
    answer = ask(world, "kafka consumer lag", session_id="s", refetch=("pay/refunds",))
    assert answer.primary.key == "pay/refunds"
    assert world.invocations[-1].retrieval_details["refetch"] == ["pay/refunds"]
