"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json
import subprocess
import sys

from bench import page
from scripts.setup.base import ROOT


def test_a_small_run_prints_what_is_documented() -> None:
    command = [sys.executable, "-m", "bench.page", "--json", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["requests_per_minute_100"] == found["requests_per_minute_1"] > 0
    assert all(f"`{name}`" in (page.__doc__ or "") for name in found), found
