"""The workers of `make test` compile a new clone together, each a share of the files."""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.support.compiled import compile_share

FILES = ("checkpoint/head.py", "tests/conftest.py", "tests/unit/test_head.py", ".cache/tool.py")


def compiled(path: Path) -> bool:
    """Tell whether an import finds the file compiled as it would itself; pytest imports tests and their fixtures."""
    if path.name in ("head.py", "tool.py"):
        return Path(cache_from_source(str(path))).exists()
    kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    return rewrite._read_pyc(path, kept) is not None


def test_each_file_is_compiled_by_one_worker(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    paths = [tmp_path / name for name in FILES]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("assert 1 + 1 == 2\n")
    found = []
    for worker in (0, 1):
        compile_share(pytestconfig, tmp_path, worker, 2)
        found.append([compiled(path) for path in paths])
    assert found == [[True, False, True, False], [True, True, True, False]], "no folder of tools"
