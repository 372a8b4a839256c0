"""The output of a benchmark's results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

_LOAD_BEFORE = round(os.getloadavg()[0], 1)


def machine() -> dict[str, object]:
    """Describe the measurement: day and commit, the machine, its load in the minute before and in the last five."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "load_before": _LOAD_BEFORE,
        "load": round(os.getloadavg()[1], 1),
        "cores": os.cpu_count(),
        "processor": _cpu(),
        "python": platform.python_version(),
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "not in a clone"


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def tell(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures: one per line, or all as one line of JSON."""
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")
