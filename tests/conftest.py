"""The suite's fixtures: real services started once per session, a fresh database per test."""

from __future__ import annotations

pytest_plugins = [
    "tests.plugins.services",
    "tests.plugins.milvus_server",
    "tests.plugins.models",
    "tests.plugins.parts",
    "tests.plugins.llm",
]
