"""What a process with an encoder does before its first task: its fingerprint becomes known, so that a bump needs no upload."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery.signals import worker_process_init

from pipeline.errors import PipelineError
from workers.base import ready

log = logging.getLogger("wellhead.workers")
RETRY_SECONDS = 5.0


@worker_process_init.connect(weak=False)
def begin(**_event: Any) -> None:
    """In every pool child; only the workers that encode have any. In a thread: a slow model must not delay the start."""
    threading.Thread(target=until_ready, name="ready", daemon=True).start()


def until_ready(pause: threading.Event | None = None, seconds: float = RETRY_SECONDS) -> None:
    """Makes this process's generation exist, however long the servers take to answer."""
    pause = pause or threading.Event()
    while True:
        try:
            ready()
        except PipelineError as error:
            log.warning("this process's generation could not be looked up yet: %s", error)
        except Exception:
            # A model that cannot be loaded is seen here first; drains say so too, and later ones may succeed.
            log.exception("this process's generation could not be made")
        else:
            return
        if pause.wait(seconds):
            return
