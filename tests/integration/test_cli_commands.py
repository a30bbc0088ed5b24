"""The command line against a real API on a real PostgreSQL; a thread stands in for the workers."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from api.app import create_app
from ops import cli
from ops.doctor import newest_migration
from ops.services import free_ports
from pipeline.documents import Lane
from pipeline.settings import Settings

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def api(database_url: str, broker_url: str, memory_url: str, tmp_path: Path, monkeypatch) -> Iterator[str]:
    """A server on a free port, named by the environment as for any command."""
    (port,) = free_ports(1)
    given = {
        "WELLHEAD_DATABASE_URL": database_url,
        "WELLHEAD_BROKER_URL": broker_url,
        "WELLHEAD_MEMORY_URL": memory_url,
        "WELLHEAD_MILVUS_URI": "http://127.0.0.1:1",
        "WELLHEAD_API_URL": f"http://127.0.0.1:{port}",
        "WELLHEAD_DATA_DIR": str(tmp_path / "data"),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    server = uvicorn.Server(uvicorn.Config(create_app(Settings()), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive()
        time.sleep(0.02)
    yield given["WELLHEAD_API_URL"]
    server.should_exit = True
    thread.join(60)


@pytest.fixture
def workers(ledgers) -> Iterator[None]:
    """Prepares and embeds whatever waits."""
    generation, stop = ledgers.generation(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            for lane in Lane:
                ledgers.prepare(lane=lane)
                ledgers.embed(generation, lane)
            stop.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join(60)


@pytest.fixture
def wellhead(monkeypatch, capsys) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wellhead", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "infra").mkdir(parents=True)
    for number in range(5):
        (root / "infra" / f"{number}.md").write_text(f"# Title {number}\n\ntext {number}")
    return root


def test_a_backfill_ends_when_everything_is_searchable_and_costs_nothing_the_second_time(
    api: str, workers: None, wellhead: Run, folder: Path
) -> None:
    status, out, _ = wellhead("backfill", str(folder), "--json")
    found = json.loads(out)
    assert (status, found.pop("seconds") > 0) == (0, True)
    assert found == {"documents": 5, "unchanged": 0, "passages": 10, "tokens": 100, "parked": 0, "searchable": 5}
    status, out, _ = wellhead("backfill", str(folder), "--json")
    found = json.loads(out)
    assert (status, found["unchanged"], found["tokens"], found["searchable"]) == (0, 5, 0, 5)


def test_prune_deletes_what_is_gone_from_the_folder_and_nothing_else(
    api: str, workers: None, wellhead: Run, folder: Path, ledgers
) -> None:
    ledgers.put("infra/of-somebody-else.md", "text")
    wellhead("backfill", str(folder))
    (folder / "infra" / "3.md").unlink()
    status, out, _ = wellhead("backfill", str(folder), "--prune")
    assert status == 0 and "1 pruned" in out
    states = {r["key"]: r["deleted_version"] for r in ledgers.rows("SELECT key, deleted_version FROM document")}
    assert [key for key, deleted in states.items() if deleted] == ["infra/3.md"]
    assert "infra/of-somebody-else.md" in states


def test_the_first_key_is_made_without_a_key_and_from_then_on_one_is_needed(
    api: str, wellhead: Run, folder: Path, monkeypatch, tmp_path: Path
) -> None:
    assert wellhead("status", "--json")[0] == 0
    status, out, _ = wellhead("keys", "create", "ops", "--scope", "read", "--json")
    made = json.loads(out)
    assert status == 0 and made["scopes"] == ["read"]
    time.sleep(1.1)  # what the API remembers of callers without a key lasts a second
    status, out, err = wellhead("status")
    assert (status, out) == (1, "") and "WELLHEAD_API_KEY" in err
    monkeypatch.setenv("WELLHEAD_API_KEY", made["key"])
    assert json.loads(wellhead("status", "--json")[1])["tenant"] == "default"
    status, _, err = wellhead("backfill", str(folder), "--no-wait")
    assert status == 1 and "'write'" in err
    assert wellhead("keys", "create", "again", "--if-none", "--file", str(tmp_path / "key"))[1] == ""
    assert not (tmp_path / "key").exists()
    assert [k["name"] for k in json.loads(wellhead("keys", "list", "--json")[1])] == ["ops"]
    assert wellhead("keys", "revoke", made["prefix"])[0] == 0
    status, _, err = wellhead("keys", "revoke", made["prefix"])
    assert status == 1 and "no active key begins" in err
    wellhead("keys", "create", "new", "--if-none", "--file", str(tmp_path / "key"))
    assert (tmp_path / "key").read_text().startswith("wh_") and (tmp_path / "key").stat().st_mode & 0o077 == 0


def test_status_is_shown_to_people_too(api: str, wellhead: Run, ledgers) -> None:
    generation = ledgers.generation()
    ledgers.put("a", "text")
    status, out, _ = wellhead("status")
    assert status == 0
    assert "pending" in out and "backfill" in out and generation.fingerprint.split("|")[1] in out


def test_a_dry_run_tells_the_time_at_the_measured_rate(api: str, workers: None, wellhead: Run, folder: Path) -> None:
    wellhead("backfill", str(folder))
    found = json.loads(wellhead("backfill", str(folder), "--dry-run", "--json")[1])
    assert found["documents"] == 5 and found["tokens_per_s"] == 100.0
    assert found["seconds"] == round(found["tokens"] / 100.0, 1)


def test_doctor_names_what_is_wrong_and_how_to_put_it_right(api: str, wellhead: Run, ledgers) -> None:
    ledgers.put("a", "text")
    ledgers.rows("UPDATE document_version SET created_at = clock_timestamp() - interval '10 min'")
    status, out, _ = wellhead("doctor", "--json")
    found = json.loads(out)
    assert status == 1 and found["ok"] is False
    states: dict[str, set[str]] = {}
    for finding in found["findings"]:
        states.setdefault(finding["part"], set()).add(finding["state"])
        assert finding["detail"] and (finding["state"] == "ok" or finding["fix"]), finding
    assert states["postgresql"] == states["broker"] == states["action_memory"] == {"ok"}
    assert states["milvus"] == states["encoder"] == {"wrong"}
    assert "wrong" in states["workers"]
    assert states["api"] == {"warning"}
    text = wellhead("doctor")[1]
    assert "WELLHEAD_MILVUS_URI" in text and "wellhead model" in text


def test_doctor_sees_a_database_that_was_not_migrated(
    empty_database_url: str, wellhead: Run, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WELLHEAD_DATABASE_URL", empty_database_url)
    findings = json.loads(wellhead("doctor", "--json", "--data-dir", str(tmp_path))[1])["findings"]
    (postgresql,) = [f for f in findings if f["part"] == "postgresql"]
    assert postgresql["state"] == "wrong" and newest_migration() in postgresql["detail"]
    assert "wellhead migrate" in postgresql["fix"]
    assert wellhead("migrate", "--data-dir", str(tmp_path))[0] == 0
    findings = json.loads(wellhead("doctor", "--json", "--data-dir", str(tmp_path))[1])["findings"]
    assert [f["state"] for f in findings if f["part"] == "postgresql"] == ["ok"]
