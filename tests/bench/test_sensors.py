"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench import sensors
from scripts.setup.base import ROOT
from tests.support.figures import undocumented


@pytest.mark.s3
@pytest.mark.soak
def test_a_small_run_prints_what_is_documented() -> None:
    command = [sys.executable, "-m", "bench.sensors", "--json", "--sensors", "3", "--waited", "0", "--window", "1"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert found["sensors"] == 3
    assert found["cpu_share_1000_s3"] > 0
    assert undocumented(found, sensors.__doc__) == ["window_s"], "an option"
