"""Removes what the other targets made; what git tracks or a user wrote stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from .setup.base import CACHE, ROOT

_MADE = (
    ".venv",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "airflow_cairn.egg-info",
    "build",
    "dist",
    "derby.log",
    "metastore_db",
    "spark-warehouse",
)


def _made() -> Iterator[Path]:
    yield from (ROOT / name for name in _MADE)
    # Go writes what it downloads read-only, but only into its own cache: .cache holds plain files.
    yield CACHE
    yield from ROOT.rglob("__pycache__")


def main() -> None:
    """Remove each of them that is there."""
    for path in list(_made()):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


if __name__ == "__main__":
    main()
