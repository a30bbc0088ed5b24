"""Files and folders: what is found, under which name, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.documents import Upload
from pipeline.reading import Reason, Refused, read_file
from pipeline.walking import FoundFile, walk
from tests.unit.readings import LIMITS


def found(path, name=None):
    return FoundFile(path=path, name=name or path.name)


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
