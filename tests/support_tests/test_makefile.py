"""Each target of the Makefile runs a module that is there."""

from __future__ import annotations

import re

import pytest

from scripts.setup.base import ROOT

MODULES = re.findall(r"python -m ((?:scripts|tests|bench)[\w.]*)", (ROOT / "Makefile").read_text())


@pytest.mark.parametrize("module", sorted(set(MODULES)))
def test_a_module_that_make_runs_is_there(module: str) -> None:
    path = ROOT.joinpath(*module.split("."))
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
