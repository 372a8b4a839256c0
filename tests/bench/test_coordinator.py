"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.coordinator import exponent
from scripts.setup.base import ROOT


def test_the_exponent_is_the_power_of_the_growth() -> None:
    assert exponent([(x, 3.0 * x) for x in (1, 10, 100)]) == pytest.approx(1)
    assert exponent([(x, 5.0 * x**2) for x in (1, 10, 100)]) == pytest.approx(2)


@pytest.mark.s3
@pytest.mark.soak
def test_requests_memory_and_the_picture_of_a_small_run(tmp_path: Path) -> None:  # semantics A6
    picture = tmp_path / "coordinator.png"
    command = [
        sys.executable,
        "-m",
        "bench.coordinator",
        "--json",
        "--subtasks",
        "100",
        "3000",
        "--stages",
        "1",
        "4",
        "16",
        "--chains",
        "2",
        "8",
        "--behind",
        "1",
        "3",
    ]
    command += ["--plot", str(picture)]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert found.keys() >= {
        "requests_per_checkpoint",
        "requests_target",
        "last_ack_to_completed_s_10000",
        "peak_mb_100000",
        "growth_exponent",
        "begins_growth_exponent",
        "mature_epoch_ratio",
    }
    assert [each["target"] for each in found["requests"]] == [17, 32, 92], "3 S + N/500 + 12"
    assert all(each["requests"] <= each["target"] for each in found["requests"]), found["requests"]
    assert [each["stages"] for each in found["claims"]] == [2, 8]
    assert [each["epochs_before"] for each in found["epochs"]] == [1, 3]
    few, many = (each["peak_mb"] for each in found["completions"])
    assert many < 2 * few
    assert picture.read_bytes().startswith(b"\x89PNG"), "the picture is drawn after the measuring, by the same process"
