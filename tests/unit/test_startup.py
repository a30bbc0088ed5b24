"""A worker that starts makes its generation known, also when a server is not there yet."""

from __future__ import annotations

import threading

from pipeline.errors import InfrastructureDown
from workers import startup


def test_it_is_tried_until_it_succeeds(monkeypatch):
    outcomes = [InfrastructureDown("PostgreSQL", part="postgresql"), ValueError("half a model"), None]

    def ready():
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(startup, "ready", ready)
    startup.until_ready(seconds=0)
    assert outcomes == []


def test_every_process_with_an_encoder_begins_so(monkeypatch):
    from celery.signals import worker_process_init

    from workers.app import app

    assert "workers.startup" in app.conf.imports
    known = threading.Event()
    monkeypatch.setattr(startup, "ready", known.set)
    worker_process_init.send(sender=None)
    assert known.wait(30)
