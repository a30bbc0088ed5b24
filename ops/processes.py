"""The command lines of Wellhead's own processes, the one place that ``up``, docker-compose and the tests take them from.

They name programs of the virtual environment; ``local`` turns one into the same program run by this Python.
"""

from __future__ import annotations

import signal
import sys

from ops.supervisor import Command
from pipeline.settings import Settings

CELERY = ("celery", "-A", "workers.app")
# Mingle and gossip carry revokes, which are not used, and grow with the fleet.
WORKER_FLAGS = ("--loglevel", "INFO", "--without-gossip", "--without-mingle")


def worker(name: str, queues: str, *pool: str) -> tuple[str, ...]:
    """A Celery worker called ``name@host`` for the comma-separated ``queues``."""
    return (*CELERY, "worker", "-n", f"{name}@%h", "-Q", queues, *pool, *WORKER_FLAGS)


# Spawned, not forked: CUDA does not survive a fork; one child, because the child owns the model.
WORKER_GPU = worker("gpu", "gpu", "-P", "prefork", "-c", "1", "--pool-start-method", "spawn")
WORKER_PREPARE = worker("prepare", "prepare", "-P", "threads", "-c", "2")
WORKER_CTL = worker("ctl", "ctl", "-P", "threads", "-c", "2")
# Threads that wait for an endpoint; apart, so that a slow one cannot hold up the sweeps.
WORKER_LLM = worker("llm", "llm", "-P", "threads", "-c", "4")
# One machine: tokenising and sweeping are light; without an endpoint so is writing summaries.
WORKER_LIGHT = worker("light", "prepare,ctl", "-P", "threads", "-c", "3")
WORKER_LIGHT_LLM = worker("light", "prepare,llm,ctl", "-P", "threads", "-c", "4")
BEAT = (*CELERY, "beat", "--loglevel", "INFO", "--pidfile=")
FLOWER = (*CELERY, "flower", "--max-tasks=20000", "--purge-offline-workers=120")
API = ("uvicorn", "api.app:create_app", "--factory")


def local(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same program run by this interpreter, whether or not its environment is activated."""
    return (sys.executable, "-m", *argv)


def workers(settings: Settings) -> list[Command]:
    """The workers and beat of one machine, which stop before the API does."""
    # A claimed group finishes within the drain budget and one batch; a worker killed earlier repeats it later.
    gpu_grace = settings.drain_seconds + 15.0
    commands = [Command(name="worker-gpu", argv=local(WORKER_GPU), grace_seconds=gpu_grace)]
    light = WORKER_LIGHT if settings.llm_base_url else WORKER_LIGHT_LLM
    commands.append(Command(name="worker-light", argv=local(light), grace_seconds=15.0))
    if settings.llm_base_url:
        commands.append(Command(name="worker-llm", argv=local(WORKER_LLM), grace_seconds=15.0))
    schedule = str(settings.data_dir / "beat-schedule")
    return [*commands, Command(name="beat", argv=local((*BEAT, "--schedule", schedule)))]


def flower(settings: Settings) -> Command:
    """Flower on loopback; its password travels in the environment, where ``ps`` does not show it."""
    auth = settings.flower_basic_auth.get_secret_value()
    argv = local((*FLOWER, "--address=127.0.0.1", f"--port={settings.flower_port}"))
    return Command(name="flower", argv=argv, env={"FLOWER_BASIC_AUTH": auth} if auth else {})


def api(settings: Settings) -> Command:
    """The HTTP server; SIGINT and SIGTERM both let requests in flight finish."""
    argv = local((*API, "--host", settings.api_host, "--port", str(settings.api_port)))
    return Command(name="api", argv=argv, stop_signal=signal.SIGTERM)
