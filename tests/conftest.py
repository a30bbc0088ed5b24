"""The suite's fixtures: real services started once per session, a fresh database per test."""

from __future__ import annotations

import signal

# A shell that runs the suite in the background leaves SIGINT ignored, and every server started here would inherit
# that; with a handler in place they start with the default, and Milvus Lite ends when it is asked to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.plugins.services",
    "tests.plugins.milvus_server",
    "tests.plugins.models",
    "tests.plugins.parts",
    "tests.plugins.llm",
]
