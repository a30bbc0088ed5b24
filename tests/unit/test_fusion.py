"""Folding passages into documents, and the order of two legs."""

from __future__ import annotations

import pytest

from pipeline.fusion import Candidate, fold, fuse, newest
from pipeline.ports import Hit, LegResults


def hit(document: int, version: int = 1, ordinal: int = 0, **scores: float) -> Hit:
    return Hit(
        key=f"{document}.{version}.{ordinal}",
        document=document,
        version=version,
        ordinal=ordinal,
        domain="d",
        hash="h",
        start=0,
        end=1,
        headings=(),
        **scores,
    )


def test_hits_of_both_legs_become_one_candidate_with_the_best_scores():
    legs = LegResults(
        dense=(hit(1, ordinal=0, dense=0.9), hit(1, ordinal=1, dense=0.8)),
        lexical=(hit(1, ordinal=1, lexical=5.0), hit(2, lexical=3.0)),
    )
    one, two = sorted(fold(legs), key=lambda c: c.document)
    assert (one.dense, one.lexical) == (0.9, 5.0)
    assert [(h.ordinal, h.dense, h.lexical) for h in one.hits] in (
        [(0, 0.9, None), (1, 0.8, 5.0)],
        [(1, 0.8, 5.0), (0, 0.9, None)],
    )
    assert (two.dense, two.lexical) == (None, 3.0)


def test_versions_are_kept_apart_and_the_newest_acceptable_one_wins():
    found = fold(LegResults(dense=(hit(1, 1, dense=0.9), hit(1, 2, dense=0.5), hit(2, 3, dense=0.7)), lexical=None))
    assert len(found) == 3
    both = newest(found, {1: frozenset({1, 2}), 2: frozenset({3})})
    assert {(c.document, c.version) for c in both} == {(1, 2), (2, 3)}
    old = newest(found, {1: frozenset({1})})
    assert [(c.document, c.version) for c in old] == [(1, 1)]


def candidate(document: int, dense: float | None, lexical: float | None) -> Candidate:
    return Candidate(document=document, version=1, dense=dense, lexical=lexical)


def test_dense_weighs_more_than_lexical():
    order = fuse([candidate(1, 0.9, 1.0), candidate(2, 0.8, 2.0)])
    assert [c.document for c in order] == [1, 2]
    assert order[0].score == pytest.approx(0.7 - 0.3)


def test_a_strong_lexical_hit_overtakes_a_faint_dense_lead():
    order = fuse(
        [candidate(1, 0.850, 0.1), candidate(2, 0.849, 30.0), *(candidate(i, 0.80, 0.1) for i in range(3, 12))]
    )
    assert order[0].document == 2


def test_a_leg_that_missed_counts_as_its_worst():
    order = fuse([candidate(1, 0.9, None), candidate(2, 0.9, 5.0), candidate(3, None, 9.0), candidate(4, 0.5, 3.0)])
    assert [c.document for c in order] == [2, 1, 3, 4]


@pytest.mark.parametrize("trusted", [True, False])
def test_one_leg_alone_orders_by_it(trusted):
    order = fuse([candidate(1, None, 1.0), candidate(2, None, 3.0)], trusted=trusted)
    assert [c.document for c in order] == [2, 1]


def test_ranks_do_not_care_about_scale():
    order = fuse([candidate(1, 0.9, 1.0), candidate(2, 0.1, 900.0), candidate(3, 0.8, 800.0)], trusted=False)
    scaled = fuse([candidate(1, 9.0, 1.0), candidate(2, 1.0, 900.0), candidate(3, 8.0, 800.0)], trusted=False)
    assert [(c.document, c.score) for c in order] == [(c.document, c.score) for c in scaled]


def test_nothing_and_equals_are_no_error():
    assert fuse([]) == []
    assert [c.document for c in fuse([candidate(2, 0.5, None), candidate(1, 0.5, None)])] == [1, 2]
