"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench import jobs
from scripts.setup.base import ROOT
from tests.support.figures import undocumented


@pytest.mark.s3
@pytest.mark.soak
@pytest.mark.parametrize("form", [[], ["--beside"]], ids=["in a group", "beside the stages"])
def test_a_small_run_prints_what_is_documented(form: list[str]) -> None:
    small = ["--jobs", "3", "--epochs", "2", "--every", "0", "--workers", "2"]
    command = [sys.executable, "-m", "bench.jobs", "--json", *small, *form]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    reads = found["requests_an_epoch"]["get_object"] + found["requests_an_epoch"]["head_object"]
    assert 18 < reads < 28, "cairn stats estimates 21 for an epoch of two stages"
    assert (found["trigger_requests_an_epoch"] > 0) == (found["most_deferred"] > 0) == bool(form)
    assert undocumented(found, jobs.__doc__) == []
