"""Are repeats stopped, and other questions of the domain not? Judged on hand-written pairs with the bundled encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ops.bench import repeats as bench
from pipeline.action_memory import Question
from pipeline.calibrate import median_cosine
from pipeline.repeats import DEFAULT_RULE, closeness_of, features, is_repeat, probability

ROOT = Path(__file__).resolve().parents[2]
CORPORA = ROOT.parent / "shared" / "corpora"
ON_THE_SHELF = ("glossary-zh", "runbooks-en", "runbooks-zh")
# The manuals of tidb-zh are ten times as long as all the others; the bench takes them in, a test need not.
NOT_ON_THE_SHELF = "tidb-zh"


@pytest.fixture(scope="module")
def judged(onnx_embedder):
    """The pairs, their vectors, and how probably each is a repeat by fits that have not seen it."""
    given = bench.pairs()
    kinds = np.array([p.kind for p in given])
    assert min((kinds == kind).sum() for kind in (bench.REPEAT, bench.LOOK_ALIKE)) >= 60
    assert (kinds == bench.RANDOM).sum() >= 300
    vectors = bench.encode(onnx_embedder, [text for p in given for text in (p.a, p.b)])
    return given, kinds, vectors, bench.cross_validated(bench.table(given, vectors), kinds)


def test_other_questions_of_the_domain_are_not_stopped(judged):
    _, kinds, _, probabilities = judged
    stopped = bench.shares(probabilities >= DEFAULT_RULE.threshold, kinds)
    assert stopped["look_alikes"] <= 0.05
    assert stopped["random"] <= 0.05
    assert stopped["repeats"] >= 0.55


def test_the_rule_in_use_is_the_one_that_was_measured(judged):
    given, kinds, vectors, _ = judged
    stopped = np.array([is_repeat(p.b, vectors[p.b], [Question(query=p.a, vector=vectors[p.a])]) for p in given])
    found = bench.shares(stopped, kinds)
    assert found["look_alikes"] <= 0.05
    assert found["random"] <= 0.05
    assert found["repeats"] >= 0.55


def test_the_encoders_unrelated_questions_are_as_near_as_the_rule_believes(judged):
    _, _, vectors, _ = judged
    assert median_cosine(np.array(list(vectors.values()))) == pytest.approx(DEFAULT_RULE.unrelated, abs=0.01)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_rule_and_document_memory_together_stop_the_repeats(judged, onnx_embedder):
    if not CORPORA.is_dir():
        pytest.skip("the corpora are not there")
    given, kinds, vectors, probabilities = judged
    shelf = bench.Shelf(
        onnx_embedder, bench.documents_of([*(CORPORA / n for n in ON_THE_SHELF), ROOT / "ops" / "demo"])
    )
    here = np.array([p.domain != NOT_ON_THE_SHELF for p in given])
    assert (here & (kinds == bench.REPEAT)).sum() >= 60
    seen = bench.handed_out_before(shelf, given, vectors)
    stopped = seen | (probabilities >= DEFAULT_RULE.threshold)
    assert bench.shares(stopped[here], kinds[here])["repeats"] >= 0.9


def test_without_vectors_only_the_same_words_repeat():
    earlier = [Question(query="如何给集群扩容？")]
    assert is_repeat("如何给集群扩容？ ", None, earlier)
    assert not is_repeat("如何给集群缩容？", None, earlier)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("错误码 8005 含义", "错误码 8004 含义"),
        ("TiCDC 同步到 Kafka 的配置", "TiCDC 同步到 MySQL 的配置"),
        ("network receive errors", "network transmit errors"),
    ],
)
def test_another_code_or_name_in_the_same_frame_is_another_question_however_near(one, other):
    assert probability(features(one, other, closeness_of(0.96, DEFAULT_RULE.unrelated))) < DEFAULT_RULE.threshold
