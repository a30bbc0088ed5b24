"""docker-compose.yml without a Docker engine: its structure, its commands, its variables, its images."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from ops import processes
from ops.cli import make_app
from pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
GPU: dict[str, Any] = yaml.safe_load((ROOT / "ops/compose/gpu.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
ONE_SHOT = {"migrate", "model", "first-key"}
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("wellhead:")}
DURATION = re.compile(r"\d+(s|m)")
# The part of the Compose Specification that the file may use: name → type.
SERVICE_KEYS: dict[str, Any] = {
    "image": str, "build": dict, "init": bool, "restart": str, "environment": dict, "volumes": list,
    "depends_on": dict, "command": list, "stop_signal": str, "stop_grace_period": str, "shm_size": str,
    "healthcheck": dict, "security_opt": list, "mem_limit": str, "ports": list, "deploy": dict,
}  # fmt: skip
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def test_everything_that_is_promised_is_there() -> None:
    assert set(SERVICES) >= {
        "postgres", "broker", "memory", "milvus", "migrate", "model", "api",
        "worker-gpu", "worker-prepare", "worker-llm", "worker-ctl", "beat", "flower",
    }  # fmt: skip


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_the_structure_that_compose_reads(name: str) -> None:
    service = SERVICES[name]
    for key, value in service.items():
        assert isinstance(value, SERVICE_KEYS[key]), key
    assert all(isinstance(part, str) for part in service["command" if "command" in service else "volumes"])
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    assert name in ONE_SHOT or DURATION.fullmatch(service["stop_grace_period"])
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        assert source in COMPOSE["volumes"] and target.startswith("/")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_can_become_true(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how["condition"] in CONDITIONS
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
        assert (how["condition"] == "service_completed_successfully") == (other in ONE_SHOT)


def test_no_service_waits_for_itself() -> None:
    done: set[str] = set()
    while len(done) < len(SERVICES):
        free = {n for n, s in SERVICES.items() if n not in done and set(s.get("depends_on", {})) <= done}
        assert free, set(SERVICES) - done
        done |= free


@pytest.mark.parametrize("name", [n for n, s in SERVICES.items() if "healthcheck" in s])
def test_a_health_check_is_complete(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert set(check) <= HEALTH_KEYS and {"test", "interval", "timeout", "retries"} <= set(check)
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert all(DURATION.fullmatch(check[key]) for key in ("interval", "timeout"))


def test_every_server_has_a_health_check() -> None:
    assert {"postgres", "broker", "memory", "etcd", "minio", "milvus", "api", "flower"} <= {
        name for name, service in SERVICES.items() if "healthcheck" in service
    }


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned_by_its_tag(name: str) -> None:
    image = SERVICES[name]["image"]
    assert re.search(r":[\w.-]*\d[\w.-]*$", image) and not image.endswith(":latest")


def test_the_base_image_is_pinned() -> None:
    (base,) = re.findall(r"^FROM (\S+)", (ROOT / "ops/compose/Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("worker-gpu", processes.WORKER_GPU),
        ("worker-prepare", processes.WORKER_PREPARE),
        ("worker-llm", processes.WORKER_LLM),
        ("worker-ctl", processes.WORKER_CTL),
        ("beat", (*processes.BEAT, "--schedule", "/var/lib/wellhead/beat-schedule")),
        ("flower", (*processes.FLOWER, "--address=0.0.0.0", "--port=8421")),
        ("api", (*processes.API, "--host", "0.0.0.0", "--port", "8420")),
    ],
)
def test_a_command_is_that_of_the_local_supervisor(name: str, expected: tuple[str, ...]) -> None:
    assert tuple(SERVICES[name]["command"]) == expected


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_program_of_a_command_is_installed_with_the_package(name: str) -> None:
    command = SERVICES[name]["command"]
    # The package itself need not be installed where the tests run from the source tree.
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert command[0] in {each.name for each in entry_points(group="console_scripts")} | set(ours)
    if command[0] == "wellhead":
        group: Any = typer.main.get_command(make_app())
        for word in command[1:]:
            if not hasattr(group, "commands"):
                break
            assert word in group.commands
            group = group.commands[word]
        options = {option for parameter in group.params for option in parameter.opts}
        assert {word for word in command if word.startswith("--")} <= options


@pytest.mark.parametrize("file", ["docker-compose.yml", "ops/compose/gpu.yml"])
def test_every_variable_of_ours_is_a_setting(file: str) -> None:
    named = set(re.findall(r"WELLHEAD_[A-Z0-9_]+", (ROOT / file).read_text("utf-8")))
    assert named
    assert {name.removeprefix("WELLHEAD_").lower() for name in named} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_values_are_accepted_by_the_settings(name: str, monkeypatch) -> None:
    for variable, value in SERVICES[name]["environment"].items():
        filled = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "secret", str(value)))
        monkeypatch.setenv(variable, filled)
    settings = Settings()
    assert settings.database_url == "postgresql+psycopg://wellhead:secret@postgres:5432/wellhead"
    for url, service in (
        (settings.broker_url, "broker"),
        (settings.memory_url, "memory"),
        (settings.milvus_uri, "milvus"),
    ):
        assert url.split("//")[1].split(":")[0] == service
        assert service in SERVICES


def test_no_password_has_a_default_and_nothing_is_published_beyond_this_machine() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    secrets = re.findall(r"\$\{((?:POSTGRES|MINIO|FLOWER)\w*)(:.)", text)
    assert {name for name, _ in secrets} == {"POSTGRES_PASSWORD", "MINIO_ROOT_PASSWORD", "FLOWER_BASIC_AUTH"}
    assert {operator for _, operator in secrets} == {":?"}
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_broker_and_action_memory_keep_what_they_must() -> None:
    broker, memory = " ".join(SERVICES["broker"]["command"]), " ".join(SERVICES["memory"]["command"])
    assert "--maxmemory-policy noeviction" in broker and "--appendonly yes" in broker
    assert "--maxmemory-policy volatile-lru" in memory and "--maxmemory " in memory


def test_the_gpu_file_changes_only_services_that_exist() -> None:
    assert set(GPU["services"]) <= OURS
    devices = GPU["services"]["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]
