"""L0: what counts as a name, where it is found, and what it says."""

from __future__ import annotations

import pytest

from pipeline.keyword_index import KeywordIndex, acceptable
from pipeline.terms import TermStatistics, code_tokens, normalise, query_terms, terms


def index(**keywords: tuple[str, ...]) -> KeywordIndex:
    made = KeywordIndex()
    for name, words in keywords.items():
        made.put(int(name[1:]), words)
    list(made.build())
    return made


def names(found, question: str) -> set[int]:
    return set(found.match(question).documents)


@pytest.mark.parametrize(
    ("keyword", "question"),
    [
        ("ERR_TIMEOUT", "what does err_timeout mean"),
        ("8005", "错误码8005是什么"),
        ("v7.5.1", "升级到v7.5.1之后变慢"),
        ("连接池", "数据库连接池怎么配置"),
        ("PAY-4031", "ＰＡＹ－４０３１ 怎么办"),
        ("Straße", "STRASSE gesperrt"),
        ("connection pool", "the Connection   Pool is full"),
        ("k8s", "k8s 集群升级"),
    ],
)
def test_keyword_is_found_whatever_its_form(keyword, question):
    assert names(index(d1=(keyword,)), question) == {1}


@pytest.mark.parametrize(
    ("keyword", "question"),
    [
        ("pay", "payment failed"),
        ("8005", "error 18005"),
        ("8005", "error 80051"),
        ("v7.5", "after v7.5.1"),
        ("5.1", "after 7.5.1"),
        ("PAY-403", "PAY-4031"),
        ("err", "ERR_TIMEOUT"),
    ],
)
def test_ascii_keyword_needs_word_boundaries(keyword, question):
    assert names(index(d1=(keyword,)), question) == set()


@pytest.mark.parametrize("keyword", ["a", "池", "5", "42", "-", ""])
def test_too_short_is_no_name(keyword):
    assert not acceptable(normalise(keyword))
    assert names(index(d1=(keyword,)), f"x {keyword} y") == set()


def test_keyword_inside_a_longer_one_does_not_count():
    found = index(d1=("连接池",), d2=("连接池配置",)).match("连接池配置")
    assert found.documents == {2}
    assert names(index(d1=("连接池",), d2=("连接池配置",)), "连接池耗尽") == {1}


def test_overlapping_keywords_of_two_documents_both_count():
    assert names(index(d1=("数据库连接",), d2=("连接池",)), "数据库连接池") == {1, 2}


@pytest.mark.parametrize(
    ("question", "covered"),
    [
        ("PAY-4031", True),
        ("PAY-4031 是什么意思？", True),
        ("What is PAY-4031?", True),
        ("PAY-4031 退款失败", False),
        ("PAY-4031 in the refund service", False),
    ],
)
def test_covering_leaves_nothing_but_question_words(question, covered):
    assert (1 in index(d1=("PAY-4031",)).match(question).covering) is covered


def test_changed_keywords_replace_the_old_ones():
    made = index(d1=("alpha", "beta"), d2=("beta",))
    made.put(1, ("gamma",))
    made.drop(2)
    list(made.build())
    assert [names(made, w) for w in ("alpha", "beta", "gamma")] == [set(), set(), {1}]
    assert len(made) == 1


def test_only_changed_shards_are_built_again():
    made = index(**{f"d{i}": (f"word{i}",) for i in range(500)})
    assert list(made.build()) == []
    made.put(3, ("word3", "another"))
    assert len(list(made.build())) == 1


def test_match_sees_the_last_build():
    made = index(d1=("alpha",))
    made.put(2, ("beta",))
    assert names(made, "alpha beta") == {1}


def test_code_tokens_of_a_text():
    body = (
        "Error 8005: Write Conflict. 错误码：9007。ERR_TIMEOUT and PAY-4031 since v7.5.1, set tidb_txn_mode."
        " Listens on port 4000 since 2024, ERROR (1205) too."
    )
    found = code_tokens("节点 20047 维护", body)
    assert found >= {"8005", "9007", "err_timeout", "pay-4031", "v7.5.1", "tidb_txn_mode", "20047", "1205"}
    assert not found & {"4000", "2024", "error", "write"}


def test_terms_are_stemmed_words_and_cjk_pairs():
    assert terms("Restarting the Pods 连接池 v2") == ["restart", "the", "pod", "连接", "接池", "v2"]
    assert query_terms("为什么连接池会耗尽？") == ["连接", "接池", "池会", "会耗", "耗尽"]
    assert query_terms("what is it") == terms("what is it")


def test_idf_weighs_rare_terms_more_and_cover_is_a_share():
    statistics = TermStatistics.of(["pod restart", "pod crash", "pod disk"])
    assert statistics.idf("unknown") > statistics.idf("crash") > statistics.idf("pod") > 0
    assert statistics.cover(["pod", "crash"], "Pods crashed") == pytest.approx(1.0)
    share = statistics.cover(["pod", "crash"], "the pod")
    assert 0 < share < 0.5
    assert statistics.cover([], "x") == 0.0
    assert statistics.share("pod crash") == pytest.approx(1 / 3)
