"""The queues, and which task rings on which."""

from __future__ import annotations

from enum import StrEnum


class Queue(StrEnum):
    """``gpu``: encode. ``prepare``: cut into passages. ``llm``: describe. ``ctl``: sweeps and long jobs."""

    GPU = "gpu"
    PREPARE = "prepare"
    LLM = "llm"
    CTL = "ctl"


ROUTES = {
    "wellhead.drain": Queue.GPU,
    "wellhead.check_recall": Queue.GPU,
    "wellhead.calibrate": Queue.GPU,
    "wellhead.prepare": Queue.PREPARE,
    "wellhead.describe": Queue.LLM,
    "wellhead.refresh_domains": Queue.LLM,
    "wellhead.sweep": Queue.CTL,
    "wellhead.long_jobs": Queue.CTL,
    "wellhead.heal": Queue.CTL,
    "wellhead.reconcile": Queue.CTL,
    "wellhead.trim": Queue.CTL,
}
