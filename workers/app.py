"""The one Celery application and its configuration; every value that is not a default says why."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Queue as KombuQueue

from pipeline.settings import Settings
from workers.queues import ROUTES, Queue

KEY_PREFIX = "wellhead:"


def make_app(broker_url: str) -> Celery:
    """A Celery application for this broker; importing no task code, so that senders stay light."""
    app = Celery("wellhead", broker=broker_url)
    app.conf.update(configuration())
    return app


def configuration() -> dict[str, Any]:
    """Measured on Celery 5.7 with Redis; see ops/decisions/0001 and 0004."""
    return {
        # Direct queues, named by hand: publishing goes straight to the list, so FLUSHALL breaks no binding.
        "task_queues": [KombuQueue(q.value, routing_key=q.value) for q in Queue],
        "task_routes": {name: {"queue": q.value} for name, q in ROUTES.items()},
        "task_create_missing_queues": False,
        "task_default_queue": Queue.CTL.value,
        # The message is a hint. Early acknowledgement would lose it with the worker; the row would still be there,
        # but only the sweep would find it.
        "task_acks_late": True,
        # The outcome is written to PostgreSQL by the task itself: requeueing a failed message only loops.
        "task_acks_on_failure": True,
        "task_acks_on_timeout": True,
        "task_reject_on_worker_lost": False,
        "worker_prefetch_multiplier": 1,
        # No results: the ledger is the result. Nothing grows in Redis.
        "task_ignore_result": True,
        "result_backend": None,
        # JSON only: pickle is remote code execution for whoever reaches the broker.
        "task_serializer": "json",
        "accept_content": ["json"],
        # A worker that lost the broker finishes its group; cancelling is not implemented for threads anyway.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # Nothing of ours uses ETA; something foreign that does must not fill the worker's memory.
        "worker_eta_task_limit": 100,
        # Flower sees what is queued, too.
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        # Torch and an ONNX session do not survive a fork; a spawned child imports for longer than four seconds.
        "worker_pool_start_method": "spawn",
        "worker_proc_alive_timeout": 300.0,
        "worker_hijack_root_logger": False,
        "beat_enable_remote_control": True,
        # A publish to a frozen broker gives up instead of hanging for ever.
        "task_publish_retry": False,
        "broker_connection_timeout": 3,
        "broker_transport_options": {
            "global_keyprefix": KEY_PREFIX,
            # More than four times the hard limit of a drain; the shortest value in the fleet wins.
            "visibility_timeout": 900,
            # Redelivery after a crash in 15 s rather than 100 s.
            "unacked_restore_interval": 15,
            "unacked_restore_throttle": 1,
            # Longer than the one second of BRPOP; bounded, so that a frozen server is noticed.
            "socket_timeout": 10,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 15,
        },
    }


def _worker_app() -> Celery:
    settings = Settings()
    app = make_app(settings.broker_url or "redis://127.0.0.1:6379/0")
    # Enforced by prefork only, for a child whose watchdog cannot run because native code holds the interpreter:
    # its claims lapse, the rest goes on. No soft limit: its exception would look like the passage's own error.
    app.conf.update(task_time_limit=settings.drain_hard_seconds + settings.drain_seconds)
    from workers.schedule import beat_schedule

    app.conf.update(
        beat_schedule=beat_schedule(settings), imports=("workers.tasks", "workers.startup", "workers.deafness")
    )
    return app


def __getattr__(name: str) -> Any:
    # ``celery -A workers.app`` looks for ``app``; a sender that only wants make_app must not build one.
    if name == "app":
        globals()["app"] = _worker_app()
        return globals()["app"]
    raise AttributeError(name)
