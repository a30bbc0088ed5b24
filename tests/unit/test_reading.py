"""Text files: every kind that is read, every encoding, and one defined outcome for whatever cannot be taken."""

from __future__ import annotations

import io

import pytest

from pipeline.limits import Limits
from pipeline.reading import Reason, read_stream
from tests.unit.readings import refusal, upload

CHINESE = "# 连接池\n\n等待时间超过五秒，说明连接池已经用尽。请检查慢查询。\n"


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
