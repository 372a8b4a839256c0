"""Completion behind `cairn`, asked as argcomplete's shell functions ask."""

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


IN_BASH = """
eval "$(register-python-argcomplete cairn)"
COMP_LINE='cairn check' COMP_POINT=11 COMP_CWORD=1 COMP_TYPE=9 COMP_WORDS=(cairn check)
"$(complete -p cairn | sed 's/.*-F \\([^ ]*\\).*/\\1/')" cairn
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""Lines that a person types once, as the help says, and then what bash does when Tab is pressed."""


def test_bash_completes_after_what_the_help_names(tmp_path: Path) -> None:
    """The line of `cairn --help`, in a real bash."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "cairn"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m airflow_cairn.cli.main \"$@\"\n")
    command.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", IN_BASH],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ["checkpoints", "checkpoint"], done.stderr
