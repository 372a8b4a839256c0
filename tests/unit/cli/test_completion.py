"""What a shell completes behind `cairn`, asked as argcomplete's shell functions ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def completed(line: str, folder: Path) -> list[str]:
    """Give what a shell would offer behind a line that was begun."""
    out = folder / "offered"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "airflow_cairn.cli.main"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(out.read_text().split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cairn check", ["checkpoint", "checkpoints"]),
        ("cairn stop flights --dr", ["--drain"]),
        ("cairn checkpoints flights --wa", ["--watch"]),
        ("cairn checkpoints of", []),
    ],
)
def test_commands_and_options_are_completed(line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "offered-as-a-job").touch()
    assert completed(line, tmp_path) == offered
