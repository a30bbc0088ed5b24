"""Files: every kind that is read, every encoding, and one defined outcome for whatever cannot be taken."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.documents import Upload
from pipeline.limits import Limits
from pipeline.reading import Reason, Refused, read_bytes, read_file, read_stream
from pipeline.walking import FoundFile, walk

LIMITS = Limits()
CHINESE = "# 连接池\n\n等待时间超过五秒，说明连接池已经用尽。请检查慢查询。\n"


def read(name, data, limits=LIMITS, **more):
    return list(read_bytes(name, data.encode() if isinstance(data, str) else data, limits, **more))


def upload(name, data, **more):
    (only,) = read(name, data, **more)
    assert isinstance(only, Upload), only
    return only


def refusal(name, data, limits=LIMITS):
    (only,) = read(name, data, limits)
    assert isinstance(only, Refused), only
    assert only.name == name and only.sentence
    return only


def found(path, name=None):
    return FoundFile(path=path, name=name or path.name)


# Markdown


FULL = """---
title: "Disk: full"
category: storage
tags: E-17, 磁盘，卷、quota
summary: >
  What to do when
  a disk is full.
covers: [disk alerts, cleanup]
when_to_retrieve: on disk alerts
source: https://wiki/disk
revision: 12
weight: 20
metadata: {team: core, level: 3, since: 2026-01-02, hot: yes}
---
# Heading

Body.
"""


def test_front_matter_gives_the_fields():
    document = upload("ops/disk.md", FULL)
    assert document.key == "ops/disk.md"
    assert document.title == "Disk: full"
    assert document.domain == "storage"
    assert document.keywords == ("E-17", "磁盘", "卷", "quota")
    assert document.summary == "What to do when a disk is full."
    assert document.covers == ("disk alerts", "cleanup")
    assert document.when_to_retrieve == "on disk alerts"
    assert document.source == "https://wiki/disk"
    assert document.revision == 12
    assert document.metadata == {"team": "core", "level": 3, "since": "2026-01-02", "hot": True}
    assert document.body == "# Heading\n\nBody.\n"


def test_front_matter_keeps_scalars_as_written():
    document = upload("a.md", "---\ntitle: 404\ntags: [yes, 1.10, 2026-01-02]\ndomain: ~\n---\nBody")
    assert (document.title, document.keywords, document.domain) == ("404", ("yes", "1.10", "2026-01-02"), "default")


def test_field_names_may_be_capitalised_and_categories_a_list():
    document = upload("a.md", "---\nTitle: T\nCategory: [net, other]\nkeywords:\n- a\n- b, c\n---\nBody")
    assert (document.title, document.domain, document.keywords) == ("T", "net", ("a", "b, c"))


def test_the_title_is_the_first_h1_then_the_stem():
    assert upload("x/a.md", "## Sub\n\n# Main\n\ntext").title == "Main"
    assert upload("x/a.b.md", "## Sub\n\ntext").title == "a.b"
    assert upload("x/a.markdown", "text").title == "a"


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule above, no fence below.\n",
        "---\njust words\n---\nmore",
        "text\n---\ntitle: x\n---\n",
        "----\na: b\n----\n",
    ],
)
def test_a_thematic_break_is_no_front_matter(text):
    document = upload("a.md", text)
    assert document.body == text
    assert document.title == "a" or "# " in text


def test_empty_front_matter_and_dots_close():
    assert upload("a.md", "---\n---\nBody").body == "Body"
    assert upload("a.md", "---\ntitle: T\n...\nBody\n---\n").body == "Body\n---\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\ntitle: ok\ntags: [a, b\n---\nBody", 4),
        ("---\ntitle: a: b\n---\nBody", 2),
        ("---\na: 1\n\tb: 2\n---\nx", 3),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text, line):
    refused = refusal("a.md", text)
    assert refused.reason is Reason.BAD_FRONT_MATTER
    assert refused.sentence.startswith(f"line {line}: ")


def test_yaml_that_would_make_objects_or_recurse_is_refused():
    bad = "---\nmetadata: !!python/object/apply:os.getcwd []\n---\nBody"
    assert refusal("a.md", bad).reason is Reason.BAD_FRONT_MATTER
    assert refusal("a.md", "---\na: " + "[" * 5000 + "\n---\nBody").reason is Reason.BAD_FRONT_MATTER


def test_front_matter_over_a_limit_is_invalid_and_says_which():
    refused = refusal("a.md", f"---\ndomain: {'x' * 65}\n---\nBody")
    assert refused.reason is Reason.INVALID
    assert "domain" in refused.sentence and "64" in refused.sentence
    assert "revision" in refusal("a.md", "---\nrevision: soon\n---\nBody").sentence


# Text, HTML


def test_plain_text():
    document = upload("notes/day one.txt", "---\nnot: front matter\n---\n\nwords\n")
    assert document.title == "day one"
    assert document.body == "---\nnot: front matter\n---\n\nwords\n"


HTML = """<!doctype html><html><head><title>The &amp; page</title><style>p { x }</style></head><body>
<script>bad()</script><h1>Main</h1><p>one <b>bold</b><br>two
three</p><!-- hidden --><div hidden>no</div><noscript>no</noscript>
<h2>List</h2><ul><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ul>
<pre><code># code
  x = 1</code></pre><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""


def test_html_becomes_what_a_reader_sees():
    document = upload("a.html", HTML)
    assert document.title == "The & page"
    assert document.body == (
        "# Main\n\none bold\ntwo three\n\n## List\n\n- a\n  - b\n- c\n\n```\n# code\n  x = 1\n```\n\nk | v\n1 | 2"
    )


def test_html_titles_fall_back():
    assert upload("a.htm", "<h1>Main <i>one</i></h1><p>x").title == "Main one"
    assert upload("dir/page.html", "<p>x").title == "page"


def test_html_says_its_encoding():
    page = "<meta charset='big5'><p>連接池已經用盡</p>"
    assert upload("a.html", page.encode("big5")).body == "連接池已經用盡"
    page = '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252"><p>café – naïve</p>'
    assert upload("a.html", page.encode("cp1252")).body == "café – naïve"


def test_html_without_visible_text_is_empty_and_depth_is_no_crash():
    assert refusal("a.html", "<script>x</script><style>y</style>").reason is Reason.EMPTY
    assert upload("a.html", "<div>" * 3000 + "deep").body == "deep"


# Encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030", "gb2312", "gbk"]
)
def test_encodings_of_chinese(encoding):
    document = upload("a.md", CHINESE.encode(encoding))
    assert document.body == CHINESE
    assert document.title == "连接池"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-16"])
def test_encodings_of_english_with_front_matter(encoding):
    document = upload("a.md", "---\r\ntitle: T\r\n---\r\nplain text\r\n".encode(encoding))
    assert (document.title, document.body) == ("T", "plain text\n")


def test_utf_16_marks_with_big_endian():
    assert upload("a.txt", b"\xfe\xff" + "字 text".encode("utf-16-be")).body == "字 text"


def test_gb18030_beyond_two_bytes():
    text = "生僻字：𠮷，以及常见的文字，足够多的常见文字。"
    assert upload("a.txt", text.encode("gb18030")).body == text


@pytest.mark.parametrize(
    "data",
    [
        "naïve café déjà vu".encode("latin-1"),
        b"plain text \x80\x81\x82 more",
        "日本語のテキスト".encode("shift_jis"),
        b"\xff\xfea",
    ]
    + ["連接池已經用盡了".encode("big5"), b"text \xc3"],
)
def test_other_encodings_are_refused_not_guessed(data):
    refused = refusal("a.txt", data)
    assert refused.reason is Reason.UNDECODABLE
    assert "byte" in refused.sentence


def test_surrogates_in_the_bytes_are_replaced():
    assert upload("a.txt", b"a\xed\xa0\x80b").body == "a\ufffdb"
    assert upload("a.txt", b"a\xed\xa0\xbd\xed\xb8\x80b").body == "a😀b"


def test_a_few_nuls_are_dropped():
    assert upload("a.txt", b"some te\0xt with\0 NULs").body == "some text with NULs"
    assert upload("a.txt", (CHINESE * 20 + "\0" * 3).encode()).body == CHINESE * 20


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n" + b"\0" * 40, b"%PDF-1.7 text", b"PK\x03\x04abc", b"\x7fELF\x02", bytes(range(256)) * 40]
    + [b"\0" * 100, b"text" + b"\0" * 200, b"\x01\x02\x03\x04a", b"word \x02\x03" * 200],
)
def test_binary_is_refused(data):
    assert refusal("a.md", data).reason is Reason.BINARY


@pytest.mark.parametrize("suffix", ["md", "txt", "html", "json", "jsonl"])
@pytest.mark.parametrize("data", [b"", b" \n\t \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_empty_files_are_refused(suffix, data):
    assert refusal(f"a.{suffix}", data).reason is Reason.EMPTY


def test_front_matter_without_a_body_is_empty():
    assert refusal("a.md", "---\ntitle: T\n---\n\n").reason is Reason.EMPTY


# Sizes and names


def test_twenty_megabytes():
    line = b"x" * 1023 + b"\n"
    assert len(upload("a.txt", line * 20 * 1024).body) == 20 * 1024 * 1024
    refused = refusal("a.txt", line * 20 * 1024 + b"y")
    assert refused.reason is Reason.TOO_LARGE and "20,971,520" in refused.sentence


def test_a_file_too_large_to_hold_is_not_read_whole():
    class Endless(io.RawIOBase):
        asked = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            self.asked += len(buffer)
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    endless = Endless()
    (refused,) = read_stream("a.md", io.BufferedReader(endless), Limits(max_body_bytes=100_000))
    assert refused.reason is Reason.TOO_LARGE
    assert endless.asked < 1_000_000


@pytest.mark.parametrize("name", ["a.png", "a", "LICENSE", "a.pdf", "a.md.bak"])
def test_other_kinds_are_refused(name):
    refused = refusal(name, "text")
    assert refused.reason is Reason.UNSUPPORTED and ".md" in refused.sentence


def test_suffixes_in_capitals_are_read():
    assert upload("README.MD", "text").key == "README.MD"


def test_a_name_that_is_no_key_is_refused():
    refused = refusal("a\x07.md", "text")
    assert refused.reason is Reason.INVALID and "key" in refused.sentence


# JSON


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


# Files and folders


def tree(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}", encoding="utf-8")


def names(*paths):
    return [item.name for item in walk(paths)]


def test_walk_is_sorted_and_names_domains(tmp_path):
    tree(tmp_path, "b.md", "a.txt", "net/z.md", "net/deep/y.html", "app/x.jsonl", "net/LICENSE", "pic.png")
    files = list(walk([tmp_path]))
    assert [(item.name, item.domain) for item in files] == [
        ("a.txt", "default"),
        ("app/x.jsonl", "app"),
        ("b.md", "default"),
        ("net/deep/y.html", "net"),
        ("net/z.md", "net"),
    ]
    assert all(item.path.is_file() and item.clash is None for item in files)


def test_walk_skips_hidden_and_version_control(tmp_path):
    tree(tmp_path, ".git/a.md", ".hidden.md", "CVS/b.md", "_darcs/c.md", ".wellhead/d.md", "e.md")
    assert names(tmp_path) == ["e.md"]
    assert names(tmp_path / ".git") == ["a.md"]
    assert names(tmp_path / ".hidden.md") == [".hidden.md"]


def test_front_matter_beats_the_directory_and_the_caller_too(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/a.md").write_text("---\ndomain: own\n---\ntext")
    (tmp_path / "net/b.md").write_text("text")
    found_files = list(walk([tmp_path]))
    assert [next(read_file(item, LIMITS)).domain for item in found_files] == ["own", "net"]
    assert [next(read_file(item, LIMITS, domain="given")).domain for item in found_files] == ["own", "given"]


def test_symbolic_links_are_followed_and_loops_end(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    tree(outside, "o.md", "sub/p.md")
    tree(root, "a/x.md", "b/y.md")
    (root / "a/up").symlink_to(root)
    (root / "a/again").symlink_to(root / "b")
    (root / "linked").symlink_to(outside)
    (root / "twice").symlink_to(outside)
    (outside / "back").symlink_to(root)
    (outside / "self").symlink_to(outside)
    (root / "z.md").symlink_to(outside / "o.md")
    assert names(root) == ["a/x.md", "b/y.md", "linked/o.md", "linked/sub/p.md", "z.md"]


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere.md")
    outcomes = [next(read_file(item, LIMITS)) for item in walk([tmp_path])]
    assert [(item.name, item.reason) for item in outcomes] == [
        ("gone.md", Reason.UNREADABLE),
        ("loop.md", Reason.UNREADABLE),
    ]
    assert "symbolic links" in outcomes[1].sentence


def test_a_path_that_is_not_there_is_refused(tmp_path):
    (item,) = walk([tmp_path / "no.md"])
    assert next(read_file(item, LIMITS)).reason is Reason.UNREADABLE


def test_a_directory_named_like_a_document_is_walked(tmp_path):
    tree(tmp_path, "a.md/b.md")
    assert names(tmp_path) == ["a.md/b.md"]
    assert next(read_file(found(tmp_path / "a.md"), LIMITS)).reason is Reason.UNREADABLE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(tmp_path):
    tree(tmp_path, "a.md", "shut/b.md")
    (tmp_path / "a.md").chmod(0)
    (tmp_path / "shut").chmod(0)
    try:
        outcomes = [next(read_file(item, LIMITS)) for item in walk([tmp_path])]
    finally:
        (tmp_path / "shut").chmod(0o700)
    assert [(item.name, item.reason) for item in outcomes] == [
        ("a.md", Reason.UNREADABLE),
        ("shut", Reason.UNREADABLE),
    ]


def test_two_roots_with_one_name_do_not_overwrite_each_other(tmp_path):
    tree(tmp_path, "one/a.md", "two/a.md")
    first, second = (next(read_file(item, LIMITS)) for item in walk([tmp_path / "one", tmp_path / "two"]))
    assert first.key == "a.md"
    assert second.reason is Reason.DUPLICATE and str(Path("one") / "a.md") in second.sentence


def test_names_are_composed(tmp_path):
    (tmp_path / "cafe\u0301.md").write_text("text")
    (item,) = walk([tmp_path])
    assert next(read_file(item, LIMITS)).key == "caf\u00e9.md"


def test_a_name_of_broken_bytes_is_refused(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.md"
    try:
        with open(path, "wb") as file:
            file.write(b"text")
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    (item,) = walk([tmp_path])
    refused = next(read_file(item, LIMITS))
    assert refused.reason is Reason.INVALID and "U+DCFF" in refused.sentence


CORPORA = Path(__file__).resolve().parents[2].parent / "shared" / "corpora"


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the shared corpora are not here")
def test_real_documents_are_read():
    outcomes = [
        item for file in walk([CORPORA / "runbooks-en", CORPORA / "tidb-zh"]) for item in read_file(file, LIMITS)
    ]
    refused = [item for item in outcomes if isinstance(item, Refused) and item.reason is not Reason.DUPLICATE]
    assert {item.reason for item in refused} <= {Reason.EMPTY}
    assert all(item.name.endswith("_index.md") for item in refused)
    assert sum(isinstance(item, Upload) for item in outcomes) > 380
