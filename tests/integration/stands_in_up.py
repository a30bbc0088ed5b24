"""Runs ``ops.up.up`` with small stand-ins for Wellhead's own parts. Usage: DATA_DIR [--dying | --done]."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ops import processes
from ops.supervisor import Command, StackError
from ops.up import up
from pipeline.settings import Settings

DATA_DIR = Path(sys.argv[1])
PART = """
import os, signal, sys, time
def stop(*_):
    with open(sys.argv[2], "a") as order:
        order.write(sys.argv[1] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
with open(sys.argv[2] + ".up", "a") as up:
    up.write(sys.argv[1] + "\\n")
while True:
    time.sleep(0.05)
"""
API = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    asked = False
    def do_GET(self):
        loading = b'{"parts": {"encoder": "loading"}}'
        ready = b'{"parts": {"encoder": "ok"}}'
        body, Handler.asked = (ready, True) if Handler.asked else (loading, True)
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
def stop(*_):
    with open(sys.argv[2], "a") as order:
        order.write(sys.argv[1] + "\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
"""


def part(name: str, code: str = PART, *arguments: str) -> Command:
    """One stand-in; it writes its name into ``DATA_DIR/order`` when it is asked to stop."""
    return Command(name=name, argv=(sys.executable, "-c", code, name, str(DATA_DIR / "order"), *arguments))


def workers(settings: Settings) -> list[Command]:
    """Three parts; beat dies at once with ``--dying``."""
    beat = part("beat", "raise SystemExit(7)") if "--dying" in sys.argv else part("beat")
    return [part("worker-gpu"), part("worker-light"), beat]


def main() -> int:
    """Run until a signal, a dying part, or ``--done``."""
    processes.workers = workers
    processes.flower = lambda settings: part("flower")
    processes.api = lambda settings: part("api", API, str(settings.api_port))
    settings = Settings(data_dir=DATA_DIR, api_port=0, flower_port=0, embedder="flagembedding")

    def done(_info: dict[str, Any]) -> int | None:
        return 5 if "--done" in sys.argv else None

    try:
        return up(settings, say=lambda line: print(line, flush=True), on_ready=done)
    except StackError as error:
        print(error, error.detail, sep="\n", flush=True)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
