"""Compiles the code once for all workers: in a new clone each would compile all of it, and throw that away."""

from __future__ import annotations

import sys
from compileall import compile_file
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # pytest keeps what it compiles, but does not compile what it does not import


def compile_share(config: pytest.Config, root: Path, at: int, of: int) -> None:
    """Compile every `of`-th file from number `at` on, as its import would, unless that has been done."""
    if sys.dont_write_bytecode:
        return
    visible = (folder for folder in sorted(root.iterdir()) if folder.is_dir() and not folder.name.startswith("."))
    paths = [path for folder in visible for path in sorted(folder.rglob("*.py"))]
    for path in paths[at::of]:
        if path.name.startswith("test_") or path.name == "conftest.py":
            _rewrite(config, path)
        else:
            compile_file(path, quiet=2)


def _rewrite(config: pytest.Config, path: Path) -> None:
    """Compile a file with tests: pytest rewrites its assertions."""
    folder = rewrite.get_cache_dir(path)
    kept = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if not kept.exists() and rewrite.try_makedirs(folder):
        source, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)
