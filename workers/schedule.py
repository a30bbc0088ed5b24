"""What beat rings. A tick that nobody took expires before the next two are due."""

from __future__ import annotations

from typing import Any

from pipeline.settings import Settings
from workers.queues import ROUTES

# Expired rows are removed a page at a time, so often is cheap and never is a flood.
TRIM_SECONDS = 600.0


def beat_schedule(settings: Settings) -> dict[str, Any]:
    """Every periodic wake-up with its period in seconds."""
    periods = {
        "wellhead.sweep": settings.sweep_seconds,
        "wellhead.heal": settings.heal_seconds,
        "wellhead.reconcile": settings.heal_seconds,
        "wellhead.trim": TRIM_SECONDS,
        "wellhead.long_jobs": settings.sweep_seconds,
        "wellhead.refresh_domains": settings.sweep_seconds,
    }
    return {
        name: {
            "task": name,
            "schedule": period,
            "options": {"queue": ROUTES[name].value, "expires": period * 2},
        }
        for name, period in periods.items()
    }
