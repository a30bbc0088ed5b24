"""The command lines of Wellhead's own processes."""

from __future__ import annotations

from collections import Counter

import pytest
from celery.bin.beat import beat as celery_beat
from celery.bin.worker import worker as celery_worker

from ops import processes
from pipeline.settings import Settings
from workers.queues import Queue

SPLIT = [processes.WORKER_GPU, processes.WORKER_PREPARE, processes.WORKER_CTL, processes.WORKER_LLM]


def queues(argv: tuple[str, ...]) -> list[str]:
    return argv[argv.index("-Q") + 1].split(",") if "-Q" in argv else []


@pytest.mark.parametrize("llm_base_url", ["", "http://127.0.0.1:1/v1"])
def test_on_one_machine_every_queue_has_exactly_one_worker(llm_base_url: str) -> None:
    commands = processes.workers(Settings(llm_base_url=llm_base_url))
    served = Counter(queue for command in commands for queue in queues(command.argv))
    assert served == Counter(queue.value for queue in Queue)


def test_a_slow_endpoint_has_a_worker_of_its_own() -> None:
    commands = processes.workers(Settings(llm_base_url="http://127.0.0.1:1/v1"))
    assert [queues(command.argv) for command in commands if "llm" in queues(command.argv)] == [["llm"]]


def test_on_many_machines_every_queue_has_exactly_one_worker() -> None:
    assert Counter(queue for argv in SPLIT for queue in queues(argv)) == Counter(queue.value for queue in Queue)


@pytest.mark.parametrize("argv", [*SPLIT, processes.WORKER_LIGHT, processes.WORKER_LIGHT_LLM, processes.BEAT])
def test_celery_knows_every_option(argv: tuple[str, ...]) -> None:
    command = {"worker": celery_worker, "beat": celery_beat}[argv[3]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in argv[4:] if word.startswith("-")} <= known


def test_the_password_of_flower_is_not_on_its_command_line() -> None:
    command = processes.flower(Settings.model_validate({"flower_basic_auth": "me:secret"}))
    assert not any("secret" in word for word in command.argv)
    assert command.env == {"FLOWER_BASIC_AUTH": "me:secret"}
    assert "--address=127.0.0.1" in command.argv
