"""A generation learns what its relevance means: jobs, maps, labels of people, going back, and the report."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime

import pytest

from pipeline.adapters.ledger.calibrations import CalibrationLedger
from pipeline.adapters.ledger.feedback import FeedbackLedger
from pipeline.adapters.ledger.invocations import InvocationLedger
from pipeline.adapters.ledger.lookups import LookupLedger
from pipeline.adapters.ledger.reports import ReportLedger
from pipeline.answers import Invocation
from pipeline.calibrate import Calibrate, CalibrationLimits
from pipeline.errors import Conflict, NotFound
from pipeline.fingerprint import passage_key
from pipeline.fitting import Fitted
from pipeline.generation import SCHEMA_VERSION
from pipeline.ports import Role, VectorRow
from pipeline.relevance import calibration_of
from tests.fakes import HashEmbedder
from tests.fakes_vectors import InMemoryVectors

FITTED = Fitted(model={"kind": "identity"}, figures={"levels": {}, "feedback": 0})
SUBJECTS = "pump valve rotor sensor boiler turbine filter gauge relay motor heater clutch piston switch nozzle".split()
PLACES = "harbour quarry airport brewery tunnel hospital library station market tower bridge garden".split()


class Bench:
    """A generation of a corpus in real PostgreSQL, its vectors in memory."""

    def __init__(self, ledgers) -> None:
        self.ledgers = ledgers
        self.embedder = HashEmbedder()
        self.store = InMemoryVectors()
        self.calibrations = CalibrationLedger(ledgers.engine)
        self.generation = self._generate()

    def _generate(self, rule: str = "r1:400"):
        made = self.ledgers.generations.ensure(self.embedder.space, rule, SCHEMA_VERSION, f"t{uuid.uuid4().hex[:8]}")
        self.store.create(made.spec)
        return made

    def add(self, count: int, start: int = 0) -> None:
        rng = random.Random(start)
        for number in range(start, start + count):
            words = rng.sample(SUBJECTS, 3) + rng.sample(PLACES, 2)
            part = f"part{number:04d}"
            body = (
                f"The {words[0]} of the {words[3]} needs {part} whenever its {words[1]} is replaced. "
                f"Order {part} from the store near the {words[4]} and note the {words[2]} before closing."
            )
            self.ledgers.put(f"d{number}", body, title=f"{words[0]} {part}")
        self.ledgers.prepare(pieces=1)
        self.ledgers.embed(self.generation)
        self._index()

    def _index(self) -> None:
        found = self.ledgers.rows(
            "SELECT e.document, v.version, v.title || ' ' || v.body AS text, length(v.body) AS size FROM embedding e"
            " JOIN document_version v ON v.document = e.document AND v.version = e.live_version"
            f" WHERE e.generation = {self.generation.id}"
        )
        dense = self.embedder.encode(self.embedder.tokenize([r["text"] for r in found], Role.PASSAGE)).dense
        self.store.upsert(
            self.generation.spec,
            [
                VectorRow(
                    key=passage_key(r["document"], r["version"], 0), tenant="default", kind="article", domain="default",
                    document=r["document"], version=r["version"], ordinal=0, hash=str(r["document"]), start=0,
                    end=r["size"], headings=(), text=r["text"], dense=vector,
                )
                for r, vector in zip(found, dense, strict=True)
            ],
        )  # fmt: skip

    def stage(self, **limits) -> Calibrate:
        return Calibrate(
            jobs=self.ledgers.jobs,
            calibrations=self.calibrations,
            texts=LookupLedger(self.ledgers.engine),
            store=self.store,
            embedder_for=lambda space: self.embedder if space == self.embedder.space else None,
            limits=CalibrationLimits(documents=40, questions=90, **limits),
        )

    def due(self) -> list[int]:
        return self.calibrations.want_due(40, 50)

    def active(self):
        return self.ledgers.generations.active()


@pytest.fixture
def bench(ledgers) -> Bench:
    return Bench(ledgers)


def invocation(tenant: str = "default", **changes) -> Invocation:
    candidates = [
        {"key": "a", "features": {"cover_root": 0.7, "dense_margin": 0.02}, "relevance": 0.8},
        {"key": "b", "features": {"cover_root": 0.1, "dense_margin": 0.01}, "relevance": 0.2},
    ]
    fields = {
        "id": str(uuid.uuid4()), "tenant": tenant, "session_id": "s", "tool_name": "lookup_knowledge", "query": "q",
        "relevance_level": "HIGHLY_RELEVANT", "dedup_reason": None, "generation": None, "calibration": None,
        "retrieval_details": {"candidates": candidates, "l1_top_similarity": 0.8085}, "latency_ms": {},
        "at": datetime.now(UTC),
    }  # fmt: skip
    return Invocation(**{**fields, **changes})


def test_a_small_corpus_keeps_the_shipped_map_and_holds_no_swap(bench: Bench):
    bench.add(10)
    assert bench.due() == []
    assert bench.calibrations.calibrated(bench.generation, 40)


def test_a_corpus_fits_its_own_map_once_and_lookups_go_by_it(bench: Bench):
    bench.add(60)
    assert not bench.calibrations.calibrated(bench.generation, 40)
    assert bench.due() == [bench.generation.id]
    asked: list[int] = []
    (number,) = bench.stage().run(bench.active(), more_time=lambda: asked.append(1) or True)
    assert len(asked) > 60
    stored = bench.calibrations.all()[0]
    assert (stored.id, stored.version, stored.documents, stored.in_use) == (number, 1, 60, True)
    level = stored.figures["levels"]["HIGHLY_RELEVANT"]
    assert stored.figures["labels"] > 100
    assert level["precision"] > 0.9
    assert level["false_accepts"] <= 0.1
    assert level["coverage"] > 0.3
    row = LookupLedger(bench.ledgers.engine).serving("default")
    assert calibration_of(row.calibration, row.generation.calibration).version == number
    assert -1.0 < row.calibration["unrelated"] < 1.0
    assert bench.calibrations.calibrated(row.generation, 40)
    assert bench.due() == []
    assert bench.stage().run(bench.active()) == []


def test_a_fit_whose_time_is_up_makes_do_with_what_it_has(bench: Bench):
    bench.add(60)
    assert bench.due() == [bench.generation.id]
    questions = iter(range(80))
    (number,) = bench.stage().run(bench.active(), more_time=lambda: next(questions, None) is not None)
    stored = bench.calibrations.all()[0]
    assert stored.id == number
    assert 100 < stored.figures["labels"] <= 160


def test_it_is_fitted_again_when_the_corpus_has_doubled(bench: Bench):
    bench.add(50)
    bench.calibrations.keep(bench.generation.id, FITTED, 30)
    assert bench.due() == []
    bench.add(10, start=50)
    assert bench.due() == [bench.generation.id]


def test_a_fit_that_learned_too_little_ends_and_is_not_tried_at_every_tick(bench: Bench):
    bench.add(45)
    bench.due()
    nothing = bench.stage(sample=0)
    assert nothing.run(bench.active()) == []
    assert bench.due() == []
    assert bench.calibrations.calibrated(bench.generation, 40)


def test_a_process_without_the_encoder_leaves_the_job_to_others(bench: Bench):
    bench.add(45)
    bench.due()
    stage = bench.stage()
    object.__setattr__(stage, "embedder_for", lambda _space: None)
    assert stage.run(bench.active()) == []
    assert bench.calibrations.fitting(bench.generation.id)


def test_going_back_to_an_older_map_lasts(bench: Bench):
    bench.add(50)
    first = bench.calibrations.keep(bench.generation.id, FITTED, 25)
    second = bench.calibrations.keep(bench.generation.id, FITTED, 50)
    assert [c.version for c in bench.calibrations.all()] == [2, 1]
    assert bench.calibrations.use(first).in_use
    assert {c.id: c.in_use for c in bench.calibrations.all()} == {first: True, second: False}
    assert bench.due() == []
    bench.calibrations.use_shipped(bench.generation.id)
    assert not any(c.in_use for c in bench.calibrations.all())
    with pytest.raises(NotFound):
        bench.calibrations.use(second + 1)


def test_a_fit_that_runs_is_not_started_twice(bench: Bench):
    bench.add(45)
    bench.calibrations.want(bench.generation.id)
    job = bench.ledgers.jobs.take_job("calibrate:", 60)
    bench.calibrations.want(bench.generation.id)
    assert bench.ledgers.jobs.take_job("calibrate:", 60) is None
    assert bench.ledgers.jobs.advance_job(job["name"], job["token"], 0, {}, finished=True)
    with pytest.raises(NotFound):
        bench.calibrations.want(99)


def test_fifty_labels_of_people_fit_a_map_with_the_made_ones(bench: Bench):
    bench.add(60)
    rows = [invocation(generation=bench.generation.id) for _ in range(50)]
    InvocationLedger(bench.ledgers.engine).write(rows)
    feedback = FeedbackLedger(bench.ledgers.engine)
    old = bench.calibrations.keep(bench.generation.id, FITTED, 60)
    for row in rows[:49]:
        feedback.add("default", row.id, relevant=True)
        feedback.add("default", row.id, relevant=False)  # the last word counts, and once
    assert bench.due() == []
    feedback.add("default", rows[49].id, relevant=False, key="b")
    assert bench.due() == [bench.generation.id]
    (new,) = bench.stage().run(bench.active())
    maps = {c.id: c for c in bench.calibrations.all()}
    assert maps[new].figures["feedback"] == 50
    assert set(maps) == {old, new}
    labelled = calibration_of(maps[new].model).relevance({"cover_root": 0.7, "dense_margin": 0.02})
    bench.ledgers.rows("DELETE FROM feedback")
    bench.calibrations.want(bench.generation.id)
    (bare,) = bench.stage().run(bench.active())
    model = next(c.model for c in bench.calibrations.all() if c.id == bare)
    assert labelled < calibration_of(model).relevance({"cover_root": 0.7, "dense_margin": 0.02})


def test_feedback_takes_the_features_of_the_answer_it_is_about(ledgers):
    feedback = FeedbackLedger(ledgers.engine)
    row, recall = invocation(), invocation(tool_name="doc_query")
    InvocationLedger(ledgers.engine).write([row, recall])
    best = feedback.add("default", row.id, relevant=True)
    named = feedback.add("default", row.id, relevant=False, key="b")
    assert (best.key, named.key, best.counted, named.counted) == ("a", "b", True, True)
    stored = ledgers.rows("SELECT key, relevant, features ->> 'cover_root' AS cover FROM feedback ORDER BY id")
    assert stored == [{"key": "a", "relevant": True, "cover": "0.7"}, {"key": "b", "relevant": False, "cover": "0.1"}]
    with pytest.raises(NotFound):
        feedback.add("other", row.id, relevant=True)
    with pytest.raises(NotFound):
        feedback.add("default", row.id, relevant=True, key="c")
    with pytest.raises(Conflict):
        feedback.add("default", recall.id, relevant=True)


def test_the_report_answers_the_three_questions_for_one_tenant(ledgers):
    rows = [
        invocation(),
        invocation(),
        invocation(relevance_level=None, retrieval_details={"l1_top_similarity": None}),
        invocation(relevance_level="DEDUPED", dedup_reason="doc_retrieved"),
        invocation(tool_name="doc_query", relevance_level="REFERENCE"),
        invocation(tenant="other"),
    ]
    InvocationLedger(ledgers.engine).write(rows)
    report = ReportLedger(ledgers.engine).report("default")
    levels = {r["relevance_level"]: r["count"] for r in report["relevance_levels"]}
    assert levels == {"HIGHLY_RELEVANT": 2, None: 1, "DEDUPED": 1}
    assert {r["dedup_reason"]: r["count"] for r in report["dedup_reasons"]} == {None: 3, "doc_retrieved": 1}
    assert [(float(r["similarity"]), r["count"]) for r in report["similarities"]] == [(0.81, 3)]
    assert {(r["tool_name"], r["relevance_level"]): r["count"] for r in report["tools"]}["doc_query", "REFERENCE"] == 1
    assert "tenant" not in report["tools"][0]
    assert ReportLedger(ledgers.engine).report("nobody") == dict.fromkeys(report, [])
