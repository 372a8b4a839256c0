"""The examples are written as a user writes them: Airflow and Spark run them as files, which are in no package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.setup.base import ROOT

EXAMPLES = sorted(path for path in (ROOT / "dags").rglob("*.py") if path.name != "__init__.py")

ORDINARY = {"ingest_sales.py", "join_stores.py", "total_sales.py"}
"""Scripts that know nothing of Cairn."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_no_example_imports_by_its_place(path: Path) -> None:
    imports = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ImportFrom)]
    assert [ast.unparse(each) for each in imports if each.level] == []
    knows = any((each.module or "").startswith("airflow_cairn") for each in imports)
    assert knows == (path.name not in ORDINARY)


def test_the_documentation_links_every_example_to_copy() -> None:
    page = (ROOT / "docs" / "how-to" / "examples.md").read_text()
    names = {path.relative_to(ROOT).as_posix() for path in EXAMPLES if path.parent.name == "examples"}
    assert len(names) >= 5
    assert set(re.findall(r"^\[(dags/examples/\w+\.py)\]\(\.\./\.\./\1\)", page, re.MULTILINE)) == names
