"""Builds the wheel that users install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from scripts.setup.base import ROOT


def built_wheel(folder: Path) -> Path:
    """Build it from a copy: the build leaves folders behind, and an old one of those would get into the next wheel.

    Args:
        folder: gets the copy and the wheel.

    Raises:
        AssertionError: the build failed or warned.
    """
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*cache*", ".venv", ".git", ".hypothesis", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    code = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "_Warning" not in done.stderr, done.stderr
    return folder / done.stdout.splitlines()[-1]
