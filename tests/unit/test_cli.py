"""The command line without a stack: what a backfill sends and counts, what commands say, their exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ops import cli
from ops.backfill import Backfill, Manifest, read_all, upload_json
from ops.cli_client import CliError
from ops.cli_lookup import shown
from ops.estimating import counter, estimated
from pipeline.limits import Limits
from pipeline.settings import Settings
from pipeline.validation import validate

LIMITS = Limits()


class Answer:
    """As much of a response as the command line reads."""

    def __init__(self, status: int, content: Any, **headers: str) -> None:
        self.status_code = status
        self.is_success = status < 400
        self.headers = headers
        self.text = content if isinstance(content, str) else json.dumps(content)

    def json(self) -> Any:
        return json.loads(self.text)


class FakeApi:
    """Keeps documents in memory; each ``states`` request makes one more of them searchable."""

    def __init__(self, *, busy: int = 0, parked: frozenset[str] = frozenset(), failing: int = 0) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.done: list[str] = []
        self.sent: list[list[dict[str, Any]]] = []
        self.deleted: list[str] = []
        self._busy, self._parked, self._failing = busy, parked, failing

    checked = staticmethod(lambda response: response)

    def send(self, method: str, path: str, **options: Any) -> Answer:
        if self._busy:
            self._busy -= 1
            return Answer(429, {"detail": "busy"}, **{"Retry-After": "7"})
        if method == "DELETE":
            self.deleted.append(path.rpartition("/")[2])
            return Answer(200 if self.documents.pop(path.rpartition("/")[2], None) else 404, {})
        return self._states(options["json"]["keys"]) if path.endswith(":states") else self._batch(options["content"])

    def _batch(self, content: bytes) -> Answer:
        lines = [json.loads(line) for line in content.splitlines()]
        self.sent.append(lines)
        return Answer(200, "\n".join(json.dumps(self._store(n, line)) for n, line in enumerate(lines, 1)))

    def _store(self, number: int, line: dict[str, Any]) -> dict[str, Any]:
        key = line["key"]
        if self._failing:
            self._failing -= 1
            return {"line": number, "key": key, "status": 503, "detail": "down"}
        if key.startswith("bad"):
            return {"line": number, "key": key, "status": 409, "detail": "an older revision"}
        known = self.documents.get(key)
        if known and known["text"] == line:
            return {"line": number, "key": key, "version": known["version"], "state": "unchanged"}
        self.documents[key] = {"text": line, "version": known["version"] + 1 if known else 1}
        return {"line": number, "key": key, "version": self.documents[key]["version"], "state": "pending"}

    def _states(self, keys: list[str]) -> Answer:
        self.done += [key for key in self.documents if key not in self.done][:1]
        return Answer(200, {"documents": [self._state(key) for key in keys if key in self.documents]})

    def _state(self, key: str) -> dict[str, Any]:
        state = "parked" if key in self._parked else "searchable" if key in self.done else "pending"
        live = self.documents[key]["version"] if state == "searchable" else None
        return {"key": key, "state": state, "live_version": live, "version": 1, "passages": 2, "tokens": 30}


class Observer:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.expected = self.finished = 0

    def read(self, count: int) -> None:
        return

    def expect(self, tokens: int) -> None:
        self.expected += tokens

    def searchable(self, tokens: int) -> None:
        self.finished += tokens

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "tls.md").write_text("---\ntags: [TLS]\n---\n# Renew\n\ntext")
    (tmp_path / "notes.txt").write_text("plain")
    return tmp_path


def run(api: FakeApi, uploads: Any, *, wait: bool = True) -> tuple[Any, Observer, list[float]]:
    observer, pauses = Observer(), list[float]()
    tally = Backfill(api, estimated, observer, pauses.append).run(uploads, wait=wait)  # type: ignore[arg-type]
    return tally, observer, pauses


def documents(*keys: str) -> list[Any]:
    return [validate({"key": key, "body": f"text of {key}"}, LIMITS) for key in keys]


def test_a_backfill_sends_what_the_files_say_and_waits_until_it_is_searchable(folder: Path) -> None:
    api = FakeApi()
    tally, observer, _ = run(api, read_all([folder], LIMITS, None))
    assert [(d["key"], d.get("domain"), d.get("keywords")) for d in api.sent[0]] == [
        ("infra/tls.md", "infra", ["TLS"]),
        ("notes.txt", "default", None),
    ]
    assert tally.to_json() == {
        "documents": 2, "unchanged": 0, "passages": 4, "tokens": 60, "parked": 0, "seconds": tally.seconds, "searchable": 2,
    }  # fmt: skip
    assert observer.expected == observer.finished > 0


def test_what_did_not_change_is_waited_for_but_counts_no_tokens(folder: Path) -> None:
    api = FakeApi()
    run(api, read_all([folder], LIMITS, None), wait=False)
    tally, observer, _ = run(api, read_all([folder], LIMITS, None))
    assert (tally.documents, tally.unchanged, tally.searchable, tally.tokens) == (2, 2, 2, 0)
    assert observer.expected == observer.finished == 0


def test_back_pressure_makes_a_backfill_wait_as_long_as_it_is_told() -> None:
    tally, _, pauses = run(FakeApi(busy=3), documents("a"))
    assert pauses[:3] == [7.0, 7.0, 7.0] and tally.searchable == 1


def test_a_line_that_could_not_be_stored_for_now_is_sent_again_alone() -> None:
    api = FakeApi(failing=1)
    tally, _, _ = run(api, documents("a", "b"))
    assert [[d["key"] for d in batch] for batch in api.sent] == [["a", "b"], ["a"]]
    assert (tally.documents, tally.searchable) == (2, 2)


def test_refused_and_parked_documents_are_named(folder: Path) -> None:
    (folder / "empty.md").write_text("")
    api = FakeApi(parked=frozenset({"notes.txt"}))
    tally, observer, _ = run(api, [*read_all([folder], LIMITS, None), *documents("bad")])
    assert (tally.documents, tally.parked, tally.searchable) == (2, 1, 1)
    assert [r.name for r in tally.refused] == ["empty.md", "bad"]
    assert any("older revision" in line for line in observer.said) and any(
        "notes.txt: parked" in s for s in observer.said
    )


def test_batches_are_bounded_by_documents(monkeypatch) -> None:
    monkeypatch.setattr("ops.backfill.BATCH_DOCUMENTS", 2)
    api = FakeApi()
    run(api, documents("a", "b", "c", "d", "e"), wait=False)
    assert [len(batch) for batch in api.sent] == [2, 2, 1]


def test_an_upload_survives_the_way_through_a_line_of_json() -> None:
    raw = {
        "key": "e",
        "events": [{"at": "2026-01-01T08:00:00+08:00", "source": "chat", "blocks": [{"type": "text", "text": "你好"}]}],
        "metadata": {"team": "x"},
        "revision": 0,
    }
    upload = validate(raw, LIMITS)
    assert validate(json.loads(json.dumps(upload_json(upload))), LIMITS) == upload


def test_prune_deletes_only_what_the_same_paths_sent_before(folder: Path, tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "data", [folder], "http://api")
    assert manifest.read() == set()
    manifest.write({"a", "b"})
    assert Manifest(tmp_path / "data", [folder], "http://api").read() == {"a", "b"}
    assert Manifest(tmp_path / "data", [folder], "http://other").read() == set()
    assert Manifest(tmp_path / "data", [folder / "infra"], "http://api").read() == set()


def test_an_estimate_knows_chinese_from_english() -> None:
    chinese, english = estimated(["数据库连接池怎么配置" * 10, "how to configure a pool " * 10])
    assert 40 <= chinese <= 90 and 40 <= english <= 90
    assert counter(Settings(data_dir=Path("nowhere")))[1] is False


def wellhead(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["wellhead", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize("command", [["status"], ["lookup", "x"], ["keys", "list"]])
def test_without_a_stack_a_command_says_so_in_one_sentence(monkeypatch, capsys, tmp_path, command) -> None:
    status, out, err = wellhead(monkeypatch, capsys, *command, "--data-dir", str(tmp_path))
    assert (status, out) == (1, "")
    assert err.count("\n") == 1 and f"No stack runs in {tmp_path}" in err and "wellhead up" in err


def test_an_api_that_does_not_answer_is_one_sentence(monkeypatch, capsys) -> None:
    monkeypatch.setenv("WELLHEAD_API_URL", "http://127.0.0.1:1")
    status, out, err = wellhead(monkeypatch, capsys, "status", "--json")
    assert (status, out) == (1, "") and "http://127.0.0.1:1 does not answer" in err


def test_usage_errors_and_wrong_settings_end_with_two(monkeypatch, capsys, tmp_path) -> None:
    assert wellhead(monkeypatch, capsys, "backfill", str(tmp_path / "missing"))[0] == 2
    assert wellhead(monkeypatch, capsys, "nothing")[0] == 2
    monkeypatch.setenv("WELLHEAD_PASSAGE_TOKENS", "many")
    status, _, err = wellhead(monkeypatch, capsys, "status")
    assert status == 2 and err.startswith("WELLHEAD_PASSAGE_TOKENS is wrong")


def test_a_dry_run_needs_no_stack_and_prints_one_json_document(monkeypatch, capsys, folder, tmp_path) -> None:
    (folder / "broken.jsonl").write_text("{")
    arguments = ["backfill", str(folder), "--dry-run", "--json", "--data-dir", str(tmp_path / "none")]
    status, out, err = wellhead(monkeypatch, capsys, *arguments)
    answer = json.loads(out)
    assert (answer["files"], answer["documents"], answer["refused"], answer["seconds"]) == (3, 2, 1, None)
    assert answer["tokens"] > 0 and answer["exact"] is False
    assert status == 1 and "broken.jsonl" in err


def test_an_answer_is_shown_with_its_level_and_place() -> None:
    answer = {
        "relevance_level": "PRECISE",
        "completeness_hint": "This is enough.",
        "message": "",
        "degraded": None,
        "primary": {"title": "TLS", "key": "tls.md", "content": "Renew it.", "citation": {"lines": [3, 9]}},
        "supplement": [],
        "deduped": [{"title": "Old", "key": "old.md"}],
    }
    lines = shown(answer)
    assert lines[0] == "PRECISE. This is enough."
    assert (
        "TLS (tls.md, lines 3-9)" in lines and "Renew it." in lines and lines[-1] == "Already handed out: Old (old.md)"
    )


def test_a_refusal_of_the_api_becomes_its_detail() -> None:
    from ops.cli_client import Api

    with pytest.raises(CliError, match=r"The API refuses \(401\): no key; set WELLHEAD_API_KEY\."):
        Api.checked(Answer(401, {"detail": "no key"}))  # type: ignore[arg-type]
