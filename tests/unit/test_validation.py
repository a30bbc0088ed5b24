"""Validation: one gate for every upload, every refusal names its field and its limit."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cleaning import clean_text
from pipeline.documents import Kind
from pipeline.errors import InvalidInput
from pipeline.settings import Settings
from pipeline.validation import Limits, meta_hash, text_hash, validate

LIMITS = Limits()
AT = "2026-03-01T08:30:00+08:00"


def said(text="hello", **more):
    return {"at": AT, "source": "lin", "blocks": [{"type": "text", "text": text}], **more}


def refusal(raw, limits=LIMITS):
    with pytest.raises(InvalidInput) as caught:
        validate(raw, limits)
    assert str(caught.value)
    return caught.value


def field_of(**fields):
    return refusal({"key": "k", "body": "text", **fields}).fields["field"]


def test_the_least_upload():
    upload = validate({"key": "a/b.md", "body": "text"}, LIMITS)
    assert (upload.key, upload.body, upload.events, upload.domain) == ("a/b.md", "text", None, "default")
    assert upload.kind is Kind.ARTICLE


def test_a_full_upload():
    upload = validate(
        {
            "key": "k",
            "title": " A\n title ",
            "domain": " infra ",
            "keywords": ["E-1", " two  words ", "E-1", ""],
            "summary": "what it says",
            "covers": ["case"],
            "when_to_retrieve": "when it burns",
            "source": "wiki",
            "revision": 7,
            "body": "text",
            "metadata": {"team": "a", "deep": [{"x": None}]},
        },
        LIMITS,
    )
    assert upload.title == "A title"
    assert upload.domain == "infra"
    assert upload.keywords == ("E-1", "two words")
    assert (upload.summary, upload.covers, upload.when_to_retrieve) == ("what it says", ("case",), "when it burns")
    assert (upload.source, upload.revision) == ("wiki", 7)
    assert upload.metadata == {"team": "a", "deep": [{"x": None}]}


def test_nulls_mean_absent():
    raw = {"key": "k", "body": "text", "events": None, "title": None, "keywords": None, "revision": None}
    assert validate({**raw, "metadata": None, "domain": None}, LIMITS) == validate({"key": "k", "body": "text"}, LIMITS)


@pytest.mark.parametrize("name", ["bodyy", "category", "tags", "", "\ud800"])
def test_an_unknown_field_is_named(name):
    error = refusal({"key": "k", "body": "text", name: 1})
    assert error.fields["field"] == clean_text(name)
    assert "not a known field" in str(error)


def test_unknown_fields_inside_events_are_named():
    assert field_of(body=None, events=[said(), said(role="user")]) == "events[1].role"
    block = {"type": "text", "text": "a", "caption": "b"}
    assert field_of(body=None, events=[said(blocks=[block])]) == "events[0].blocks[0].caption"


@pytest.mark.parametrize("raw", [[], "text", None, 4])
def test_only_an_object_is_an_upload(raw):
    assert refusal(raw).fields["field"] == ""


@pytest.mark.parametrize(
    "key",
    [None, 1, "", "/a", "a/", "/", "a//b", "a/../b", "..", ".", "./a", " a", "a ", "a\nb", "a\0b", "a\x7f", "\ud800"]
    + ["a\u2028b", "é" * 257, "x" * 513],
)
def test_a_bad_key_is_refused(key):
    assert refusal({"key": key, "body": "text"}).fields["field"] == "key"


@pytest.mark.parametrize("key", ["a", "a b", "目录/文件.md", "a..b/c...", "é" * 256, "x" * 512, "a?b#c%20"])
def test_a_good_key_is_kept(key):
    assert validate({"key": key, "body": "text"}, LIMITS).key == key


def test_keys_are_composed():
    assert validate({"key": "cafe\u0301", "body": "text"}, LIMITS).key == "caf\u00e9"


def test_body_or_events_exactly_one():
    assert refusal({"key": "k"}).fields["field"] == "body"
    assert refusal({"key": "k", "body": "a", "events": [said()]}).fields["field"] == "body"


@pytest.mark.parametrize("body", ["", " \n", "\0", 4, ["text"], {"a": 1}])
def test_a_body_is_a_text_that_is_not_empty(body):
    assert field_of(body=body) == "body"


def test_a_body_is_measured_in_bytes():
    limits = Limits(max_body_bytes=9)
    assert validate({"key": "k", "body": "三个字"}, limits).body == "三个字"
    error = refusal({"key": "k", "body": "三个字!"}, limits)
    assert error.fields == {"field": "body", "limit": 9}
    assert "10 bytes" in str(error) and "at most 9" in str(error)


@pytest.mark.parametrize(
    ("name", "most"), [("domain", 64), ("title", 1000), ("summary", 4000), ("when_to_retrieve", 1000), ("source", 2048)]
)
def test_texts_are_measured_in_characters(name, most):
    assert getattr(validate({"key": "k", "body": "b", name: "字" * most}, LIMITS), name) == "字" * most
    error = refusal({"key": "k", "body": "b", name: "字" * (most + 1)})
    assert error.fields == {"field": name, "limit": most}
    assert field_of(**{name: 4}) == name


def test_keywords_and_covers_are_bounded():
    assert len(validate({"key": "k", "body": "b", "keywords": [f"k{n}" for n in range(200)]}, LIMITS).keywords) == 200
    assert refusal({"key": "k", "body": "b", "keywords": ["k"] * 201}).fields == {"field": "keywords", "limit": 200}
    error = refusal({"key": "k", "body": "b", "keywords": ["k", "x" * 129]})
    assert error.fields == {"field": "keywords[1]", "limit": 128}
    assert field_of(keywords="one, two") == "keywords"
    assert field_of(keywords=["a", 4]) == "keywords[1]"
    assert field_of(covers=["x" * 257]) == "covers[0]"
    assert field_of(covers=["x"] * 101) == "covers"


def test_a_domain_is_printable():
    assert field_of(domain="a\x07b") == "domain"


@pytest.mark.parametrize("revision", [-1, 2**63, 1.0, "1", True])
def test_a_bad_revision_is_refused(revision):
    assert field_of(revision=revision) == "revision"


def test_revisions_are_whole_numbers():
    assert validate({"key": "k", "body": "b", "revision": 0}, LIMITS).revision == 0
    assert validate({"key": "k", "body": "b", "revision": 2**63 - 1}, LIMITS).revision == 2**63 - 1


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "metadata",
    [[], "text", {"a": math.nan}, {"a": math.inf}, {"a": {1, 2}}, {1: "a"}, {"a" * 129: 1}, {"a\0\x01": 1}, nested(9)]
    + [{str(n): n for n in range(257)}, {"a": "字" * 22_000}, {"a": [0] * 70_000}, {"a": nested(2000)}],
    ids=range(13),
)
def test_bad_metadata_is_refused(metadata):
    assert field_of(metadata=metadata).startswith("metadata")


def test_metadata_is_cleaned_and_kept():
    raw = {"a": "x\0y\ud800", "n": 1, "f": 1.5, "b": True, "z": None, "l": ["\r\n"]}
    upload = validate({"key": "k", "body": "b", "metadata": raw}, LIMITS)
    assert upload.metadata == {**raw, "a": "xy\ufffd", "l": ["\n"]}
    assert validate({"key": "k", "body": "b", "metadata": nested(8)}, LIMITS).metadata == nested(8)


def test_an_alias_bomb_in_metadata_stops_early():
    bomb = ["x"]
    for _ in range(6):
        bomb = [bomb] * 50
    assert field_of(metadata={"a": bomb}) == "metadata"


def test_an_episode():
    picture = {"type": "image", "mime": "image/png", "ref": "s3://b/1.png"}
    raw = {"key": "talk/1", "events": [said(), {"at": AT, "user_id": "u", "agent_id": "a", "blocks": [picture]}]}
    upload = validate(raw, LIMITS)
    assert upload.kind is Kind.EPISODE and upload.body is None
    first, second = upload.events
    assert first.at == datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
    assert first.at.isoformat() == AT, "the zone is part of what was said"
    assert (first.text, first.source) == ("hello", "lin")
    assert (second.user_id, second.agent_id, second.text) == ("u", "a", "")
    assert (second.blocks[0].mime, second.blocks[0].ref) == ("image/png", "s3://b/1.png")


@pytest.mark.parametrize(
    "at",
    [None, "", "2026-03-01", "2026-03-01T08:30:00", "yesterday", 1700000000, "2026-13-01T00:00:00Z", "20260301T083000Z"]
    + ["2026-03-01T25:00:00Z", "2026-W09-7T00:00:00Z", "0001-01-01T00:00:00+10:00", datetime(2026, 3, 1)],
)
def test_a_time_without_zone_or_sense_is_refused(at):
    assert field_of(body=None, events=[said(), said(), said(), said(at=at)]) == "events[3].at"


@pytest.mark.parametrize(
    ("at", "iso"),
    [
        ("2026-03-01T08:30:00Z", "2026-03-01T08:30:00+00:00"),
        ("2026-03-01t08:30:00z", "2026-03-01T08:30:00+00:00"),
        ("2026-03-01 08:30:00.5-03:30", "2026-03-01T08:30:00.500000-03:30"),
        ("2026-03-01T08:30:00.123456789Z", "2026-03-01T08:30:00.123456+00:00"),
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
    ],
)
def test_times_are_rfc_3339(at, iso):
    assert validate({"key": "k", "events": [said(at=at)]}, LIMITS).events[0].at.isoformat() == iso


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ("text", ""),
        ({}, ".type"),
        ({"type": 4}, ".type"),
        ({"type": "x" * 33}, ".type"),
        ({"type": "text"}, ".text"),
        ({"type": "text", "text": " "}, ".text"),
        ({"type": "text", "text": "a", "ref": "r"}, ".ref"),
        ({"type": "image", "ref": "r"}, ".mime"),
        ({"type": "image", "mime": "png", "ref": "r"}, ".mime"),
        ({"type": "image", "mime": "image/png"}, ".ref"),
        ({"type": "image", "mime": "image/png", "ref": "r" * 2049}, ".ref"),
        ({"type": "image", "mime": "image/png", "ref": "r", "text": "a cat"}, ".text"),
    ],
)
def test_a_bad_block_is_refused(block, field):
    assert field_of(body=None, events=[said(), said(blocks=[block])]) == f"events[1].blocks[0]{field}"


@pytest.mark.parametrize("events", [[], {}, "text", 4])
def test_an_episode_has_events(events):
    assert field_of(body=None, events=events) == "events"


def test_events_and_blocks_are_bounded():
    limits = Limits(max_events=2, max_blocks=2, max_body_bytes=10)
    block = {"type": "text", "text": "a"}
    assert refusal({"key": "k", "events": [said()] * 3}, limits).fields == {"field": "events", "limit": 2}
    error = refusal({"key": "k", "events": [said(blocks=[block] * 3)]}, limits)
    assert error.fields == {"field": "events[0].blocks", "limit": 2}
    error = refusal({"key": "k", "events": [said("六个字"), said("六")]}, limits)
    assert error.fields == {"field": "events", "limit": 10}
    assert field_of(body=None, events=[said(blocks=[])]) == "events[0].blocks"
    assert field_of(body=None, events=[said(), "hello"]) == "events[1]"
    assert field_of(body=None, events=[said(source="x" * 257)]) == "events[0].source"


def test_text_is_cleaned_everywhere():
    upload = validate({"key": "k", "title": "t\0", "body": "a\r\nb\rc\0d\ud800e\ud83d\ude00\udc00"}, LIMITS)
    assert upload.body == "a\nb\ncd\ufffde😀\ufffd"
    assert upload.title == "t"
    assert validate({"key": "k", "events": [said("x\0\ud800")]}, LIMITS).events[0].text == "x\ufffd"


@settings(deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_cleaned_text_can_be_stored_and_stays(text):
    cleaned = clean_text(text)
    assert "\0" not in cleaned and "\r" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned


def test_the_title_falls_back():
    assert (
        validate({"key": "a/b.md", "body": "intro\n\n## First *one*\n\ntext\n\n# Second"}, LIMITS).title == "First one"
    )
    assert validate({"key": "a/b.md", "body": "no heading"}, LIMITS).title == "b.md"
    assert validate({"key": "a/talk", "title": " ", "events": [said("# not a heading")]}, LIMITS).title == "talk"


def test_limits_come_from_settings():
    limits = Limits.from_settings(Settings(max_body_bytes=5, max_keywords=1))
    assert (limits.max_body_bytes, limits.max_keywords, limits.max_metadata_depth) == (5, 1, 8)
    assert refusal({"key": "k", "body": "sixsix"}, limits).fields["limit"] == 5


ARTICLE = {"key": "k", "title": "t", "body": "b"}
EPISODE = {"key": "k", "title": "t", "events": [said()]}


def hashes(raw):
    upload = validate(raw, LIMITS)
    return text_hash(upload), meta_hash(upload)


@pytest.mark.parametrize(
    ("base", "change"),
    [(ARTICLE, {"title": "u"}), (ARTICLE, {"body": "c"}), (EPISODE, {"title": "u"}), (EPISODE, {"events": [said("x")]})]
    + [(EPISODE, {"events": [said(source="other")]}), (EPISODE, {"events": [said(), said()]})]
    + [(EPISODE, {"events": [said(user_id="u")]}), (EPISODE, {"events": [said(at="2026-03-01T08:30:01+08:00")]})],
)
def test_text_changes_the_text_hash_alone(base, change):
    before, after = hashes(base), hashes({**base, **change})
    assert before[0] != after[0] and before[1] == after[1]


def test_another_medium_is_another_text():
    def picture(ref):
        return {**EPISODE, "events": [said(blocks=[{"type": "image", "mime": "image/png", "ref": ref}])]}

    assert hashes(picture("a"))[0] != hashes(picture("b"))[0]


@pytest.mark.parametrize(
    "change",
    [{"domain": "d"}, {"keywords": ["k"]}, {"summary": "s"}, {"covers": ["c"]}, {"when_to_retrieve": "w"}]
    + [{"source": "s"}, {"metadata": {"a": 1}}],
)
def test_metadata_changes_the_meta_hash_alone(change):
    before, after = hashes(ARTICLE), hashes({**ARTICLE, **change})
    assert before[0] == after[0] and before[1] != after[1]


def test_key_and_revision_are_no_content():
    assert hashes(ARTICLE) == hashes({**ARTICLE, "key": "other", "revision": 9})


def test_the_same_moment_in_another_zone_is_the_same_text():
    assert hashes(EPISODE) == hashes({**EPISODE, "events": [said(at="2026-03-01T00:30:00Z")]})
