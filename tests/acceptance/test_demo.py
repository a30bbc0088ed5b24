"""``make demo``: everything real in a throw-away directory, three questions with three outcomes, exit status 0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_ends_with_status_0_after_three_different_outcomes():
    done = subprocess.run(
        [sys.executable, "-m", "ops.demo_run"], cwd=ROOT, capture_output=True, text=True, timeout=570, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "PRECISE" in done.stdout
    assert "nothing found" in done.stdout
    assert "HIGHLY_RELEVANT" in done.stdout or "REFERENCE" in done.stdout
