"""JSON and JSON Lines: uploads, bad lines beside good ones, and conversations that become episodes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

from pipeline.documents import Upload
from pipeline.limits import Limits
from pipeline.reading import Reason, Refused, read_stream
from tests.unit.readings import LIMITS, read, refusal, upload


def test_json_lines_are_uploads():
    lines = [
        {"key": "one", "title": "T", "domain": "d", "keywords": ["k"], "body": "text"},
        {"key": "two", "events": [{"at": "2026-03-01T00:00:00Z", "blocks": [{"type": "text", "text": "hi"}]}]},
    ]
    one, two = read("in/x.jsonl", "\n\n".join(map(json.dumps, lines)), domain="in")
    assert (one.key, one.domain, one.keywords, one.body) == ("one", "d", ("k",), "text")
    assert (two.key, two.domain, two.body) == ("two", "in", None)


def test_a_bad_line_is_bad_alone():
    lines = [b'{"key": "a", "body": "1"}', b'{"key": ', b"[1]", b'{"key": "b", "body": ""}', b'{"body": "x"}']
    lines += [
        b'{"key": "c", "body": "x", "tags": 1}',
        b'"\xff"',
        b'{"key": "d", "body": NaN}',
        b'{"key": "e", "body": "2"}',
    ]
    outcomes = read("x.ndjson", b"\n".join(lines))
    assert [(item.name, item.reason) for item in outcomes if isinstance(item, Refused)] == [
        ("x.ndjson:2", Reason.BAD_JSON),
        ("x.ndjson:3", Reason.BAD_JSON),
        ("x.ndjson:4", Reason.EMPTY),
        ("x.ndjson:5", Reason.INVALID),
        ("x.ndjson:6", Reason.INVALID),
        ("x.ndjson:7", Reason.UNDECODABLE),
        ("x.ndjson:8", Reason.BAD_JSON),
    ]
    assert [item.key for item in outcomes if isinstance(item, Upload)] == ["a", "e"]
    assert "tags" in outcomes[5].sentence


def test_surrogates_and_nuls_in_json_escapes():
    document = upload("a.jsonl", r'{"key": "k", "body": "a\ud800b\u0000c \ud83d\ude00"}')
    assert document.body == "a\ufffdbc 😀"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030", "utf-32"])
def test_json_in_other_encodings(encoding):
    lines = "".join(json.dumps({"key": f"键{n}", "body": "正文的内容"}, ensure_ascii=False) + "\r\n" for n in range(3))
    assert [item.key for item in read("a.jsonl", lines.encode(encoding))] == ["键0", "键1", "键2"]
    one = json.dumps({"key": "k", "body": "正文的内容"}, ensure_ascii=False)
    assert upload("a.json", one.encode(encoding)).body == "正文的内容"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_over_the_limit_is_refused_and_the_next_one_read(encoding):
    limits = Limits(max_batch_bytes=1000, max_body_bytes=1000)
    lines = ["{'" + "x" * 5000, json.dumps({"key": "k", "body": "b"})]
    refused, document = read("a.jsonl", "\n".join(lines).encode(encoding), limits)
    assert (refused.name, refused.reason) == ("a.jsonl:1", Reason.TOO_LARGE)
    assert document.key == "k"


def test_json_lines_are_streamed():
    class Lines(io.RawIOBase):
        given = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            line = json.dumps({"key": f"k{self.given}", "body": "b" * 100_000}).encode() + b"\n"
            self.given += 1
            buffer[: len(line)] = line
            return len(line)

    lines = Lines()
    outcomes = read_stream("a.jsonl", io.BufferedReader(lines, 200_000), LIMITS)
    assert [next(outcomes).key for _ in range(50)] == [f"k{n}" for n in range(50)]
    assert lines.given <= 55, "an endless file is read as far as it is asked for"


def test_json_documents():
    assert upload("a.json", '{"key": "k", "body": "b"}').key == "k"
    assert [item.key for item in read("a.json", '[{"key": "k", "body": "b"}, {"key": "l", "body": "c"}]')] == ["k", "l"]
    assert refusal("a.json", "[]").reason is Reason.EMPTY
    assert refusal("a.json", "{").reason is Reason.BAD_JSON
    assert refusal("a.json", "[" * 100_000).reason is Reason.BAD_JSON
    assert refusal("a.json", "9" * 5000).reason is Reason.BAD_JSON
    assert refusal("a.json", '"text"').reason is Reason.BAD_JSON
    assert refusal("a.json", b"x" * 101, Limits(max_batch_bytes=100)).reason is Reason.TOO_LARGE


# Conversations


def test_messages_become_an_episode():
    chat = {
        "id": "talk-7",
        "title": "Outage",
        "model": "ignored",
        "created_at": 1700000000,
        "messages": [
            {"role": "user", "content": "It is down"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": '{"a":1}'}}]},
            {"role": "tool", "content": "", "timestamp": "2026-03-01T08:00:00+08:00"},
            {"role": "user", "name": "lin", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://x/a.png?s=1"}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}], "at": 1772323200500},
        ],
    }  # fmt: skip
    document = upload("chats/a.jsonl", json.dumps(chat), domain="chats")
    assert (document.key, document.title, document.domain) == ("talk-7", "Outage", "chats")
    started = datetime.fromtimestamp(1700000000, UTC)
    assert [(event.source, event.at) for event in document.events] == [
        ("user", started),
        ("assistant", started),
        ("lin", datetime(2026, 3, 1, tzinfo=UTC)),
        ("user", datetime(2026, 3, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
    ]
    assert [event.text for event in document.events] == ["It is down", 'look({"a":1})', "see", ""]
    assert [(b.type, b.mime, b.ref) for b in document.events[2].blocks[1:]] == [
        ("image", "image/png", "https://x/a.png?s=1")
    ]
    assert document.events[3].blocks[0].mime == "image/jpeg"
    assert document.events[3].blocks[0].ref.startswith("sha256:")


def test_conversations_without_a_key_or_times_are_the_same_every_time():
    line = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    first, second = read("a/chats.jsonl", f"{line}\n{line}")
    assert (first.key, second.key) == ("a/chats.jsonl/1", "a/chats.jsonl/2")
    assert first.events[0].at == datetime(1970, 1, 1, tzinfo=UTC)
    assert read("a/chats.jsonl", f"{line}\n{line}") == [first, second]


def test_a_naive_time_in_a_chat_is_named():
    chat = {
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "at": "2026-03-01T08:00:00"}]
    }
    assert "events[1].at" in refusal("a.json", json.dumps(chat)).sentence


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": ""}], ["text"]])
def test_a_conversation_that_says_nothing_is_refused(messages):
    assert refusal("a.json", json.dumps({"messages": messages})).reason is Reason.INVALID


def test_a_bare_list_of_messages_is_one_episode():
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    for name, data in (("t.json", json.dumps(messages)), ("t.jsonl", "\n".join(map(json.dumps, messages)))):
        document = upload(name, data)
        assert (document.key, [event.text for event in document.events]) == (name, ["hi", "yo"])


def test_a_hundred_thousand_messages():
    data = b"".join(
        b'{"role":"user","content":"message %d","timestamp":%d}\n' % (n, 1700000000 + n) for n in range(100_000)
    )
    document = upload("long.jsonl", data)
    assert len(document.events) == 100_000
    assert document.events[-1].text == "message 99999"
    refused = refusal("long.jsonl", b"\n".join(data.split(b"\n")[:11]), Limits(max_events=10))
    assert refused.reason is Reason.TOO_LARGE and "at most 10" in refused.sentence
