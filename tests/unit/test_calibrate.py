"""A corpus labels itself, a map is fitted from the labels, and its figures come from documents it never saw."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipeline.calibrate import evidence_of, median_cosine
from pipeline.content import Excerpt
from pipeline.errors import PipelineError
from pipeline.fitting import Evidence, fit, logistic, to_json
from pipeline.live import LiveDocument
from pipeline.ports import Hit, LegResults
from pipeline.pseudo_questions import PseudoQuestion, Source, key_terms, make_questions, segment_words
from pipeline.relevance import calibration_of
from pipeline.terms import TermStatistics
from tests.fakes_lookup import NOW

TEXTS = {
    0: ("Refunds", "A refund is paid back to the card within five working days. Chargebacks are handled by finance."),
    1: (
        "Certificates",
        "The certificate of the shop is renewed by the issuer every sixty days. Browsers warn otherwise.",
    ),
    2: ("退款", "退款会在五个工作日内原路退回银行卡。拒付由财务部门处理，客服不得承诺金额。"),
    4: ("Invoices", "An invoice is sent to the customer by mail after the order was shipped. Finance keeps a copy."),
}
SOURCES = [Source(document=n, title=t, body=b) for n, (t, b) in TEXTS.items()]
STATISTICS = TermStatistics.of(f"{t}\n{b}" for t, b in TEXTS.values())


class Shelf:
    """Every document is live; texts come from ``TEXTS``."""

    def live(self, documents):
        return {
            n: LiveDocument(
                document=n, key=str(n), title=TEXTS[n][0], domain="", source="", updated_at=NOW, live_version=1,
                prev_version=None,
            )
            for n in documents
        }  # fmt: skip

    def excerpts(self, places):
        return {
            (p.document, 1): Excerpt(
                text=TEXTS[p.document][1], offset=0, first_line=1, length=len(TEXTS[p.document][1])
            )
            for p in places
        }


def hit(document: int, **scores: float) -> Hit:
    return Hit(
        key=f"{document}.1.0", document=document, version=1, ordinal=0, domain="", hash=str(document), start=0,
        end=len(TEXTS[document][1]), headings=(), **scores,
    )  # fmt: skip


def test_questions_are_in_the_language_of_their_document_and_the_same_every_time():
    made = make_questions(SOURCES, STATISTICS, segment_words, 30)
    assert made == make_questions(SOURCES, STATISTICS, segment_words, 30)
    assert {q.document for q in made} == set(TEXTS)
    for question in made:
        chinese = any("\u4e00" <= c <= "\u9fff" for c in question.text)
        assert chinese == (question.document == 2)


def test_key_terms_tell_a_document_from_the_others():
    terms = key_terms(SOURCES[1], STATISTICS, segment_words)
    assert terms.index("certificate") < terms.index("every") if "every" in terms else "certificate" in terms
    assert "finance" not in terms


def test_too_short_a_document_makes_no_question():
    assert make_questions([Source(document=1, title="a", body="b")], STATISTICS, segment_words, 9) == []
    assert make_questions([], STATISTICS, segment_words, 9) == []


def test_how_near_unrelated_questions_are_is_the_median_over_all_pairs():
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    assert median_cosine(vectors) == pytest.approx(0.6)
    assert median_cosine(vectors[:1]) is None


def test_each_question_is_asked_with_its_document_and_with_a_quarter_of_the_documents_gone():
    legs = LegResults(
        dense=(hit(0, dense=0.9), hit(4, dense=0.88), hit(1, dense=0.8)),
        lexical=(hit(0, lexical=5.0), hit(1, lexical=1.0)),
    )
    asked = PseudoQuestion(text="refund card", document=0)
    there, gone = evidence_of(asked, legs, Shelf(), STATISTICS)
    assert (there.right, there.answerable) == (True, True)
    assert (gone.right, gone.answerable) == (False, False)
    # 4 went with 0: they are of one fold. What is left is judged by what is left alone.
    assert gone.features["dense"] == pytest.approx(0.8)
    assert gone.features["lexical_ratio"] == 1.0
    assert there.features["lexical_cover"] > gone.features["lexical_cover"]


def test_a_question_whose_document_is_not_first_is_no_right_answer():
    legs = LegResults(dense=(hit(1, dense=0.9), hit(0, dense=0.8)), lexical=(hit(1, lexical=2.0),))
    there, _ = evidence_of(PseudoQuestion(text="refund card", document=0), legs, Shelf(), STATISTICS)
    assert there.answerable
    assert not there.right


def made_evidence(count: int = 400, seed: int = 3) -> list[Evidence]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        answerable = number % 2 == 0
        right = answerable and rng.random() < 0.95
        cover = rng.gauss(0.8 if right else 0.3, 0.15)
        found.append(
            Evidence(
                features={"cover_root": cover, "dense_margin": rng.gauss(0.05 if right else 0.01, 0.01)},
                right=right,
                answerable=answerable,
                fold=number // 2 % 4,
            )
        )
    return found


def test_a_fitted_map_tells_answers_from_others_and_survives_json():
    fitted = fit(made_evidence())
    map_ = calibration_of(fitted.model, version=7)
    assert map_.version == 7
    assert map_.relevance({"cover_root": 0.9, "dense_margin": 0.06}) > 0.9
    assert map_.relevance({"cover_root": 0.2, "dense_margin": 0.0}) < 0.1
    level = fitted.figures["levels"]["HIGHLY_RELEVANT"]
    assert level["precision"] > 0.95
    assert level["coverage"] > 0.85
    assert level["false_accepts"] < 0.05


def test_figures_do_not_flatter_a_map_that_learned_nothing():
    rng = random.Random(1)
    noise = [
        Evidence(features={"cover_root": rng.random()}, right=n % 2 == 0, answerable=n % 2 == 0, fold=n // 2 % 4)
        for n in range(400)
    ]
    level = fit(noise).figures["levels"]["REFERENCE"]
    assert abs(level["coverage"] - level["false_accepts"]) < 0.1


def test_a_feature_that_nobody_has_is_left_out_of_the_map():
    map_ = logistic(made_evidence())
    assert set(map_.features) == {"cover_root", "dense_margin"}
    assert set(to_json(map_)) == {"kind", "features", "mean", "scale", "weights", "bias"}


def test_labels_of_people_move_the_map():
    wrong = [
        Evidence(features={"cover_root": 0.8, "dense_margin": 0.05}, right=False, answerable=False, weight=2.0)
        for _ in range(80)
    ]
    question = {"cover_root": 0.8, "dense_margin": 0.05}
    before, after = logistic(made_evidence()), logistic([*made_evidence(), *wrong])
    assert after.relevance(question) < before.relevance(question) - 0.1


@pytest.mark.parametrize("evidence", [[], made_evidence(12)])
def test_too_few_labels_fit_no_map(evidence):
    with pytest.raises(PipelineError, match="too few"):
        fit(evidence)


def test_figures_come_from_folds_that_took_no_part():
    # In each fold another feature gives the answer away: a map knows it only of folds it was fitted on.
    evidence = [
        Evidence(features={f"clue{fold}": float(right), "other": 0.5}, right=right, answerable=right, fold=fold)
        for fold in range(4)
        for right in (True, False)
        for _ in range(20)
    ]
    names = ("clue0", "clue1", "clue2", "clue3", "other")
    level = fit(evidence, names=names).figures["levels"]["REFERENCE"]
    assert level["coverage"] == level["false_accepts"]
