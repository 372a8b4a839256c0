"""The environment of a cell: a Python and the packages that it names, made by uv once and kept in `.cache/matrix`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from scripts.setup.base import CACHE, only_one, run
from scripts.setup.uv import ensure_uv


def programs_of(name: str, python: str | Path, packages: Sequence[str]) -> Path:
    """Give the programs of a virtual environment with these packages and what they need, and nothing else.

    Args:
        name: of the folder; says which Python.
        python: a version, which uv finds on this machine or fetches, or an interpreter.
        packages: as pip names them.

    Raises:
        SetupError: there is no such Python, or a package cannot be installed.
    """
    home = CACHE / "matrix" / name
    stamp, wanted = home / ".complete", hashlib.sha256(" ".join(packages).encode()).hexdigest()
    with only_one():
        if not stamp.is_file() or stamp.read_text() != wanted:
            uv = ensure_uv()
            # Without this project's settings: by them every PySpark is the newest.
            run([uv, "venv", "--no-config", "--quiet", "--clear", "--python", python, home])
            into = ("--python", home / "bin" / "python")
            run([uv, "pip", "install", "--no-config", "--quiet", "--compile-bytecode", *into, *packages])
            stamp.write_text(wanted)
    return home / "bin"
