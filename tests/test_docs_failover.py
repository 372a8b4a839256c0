"""The table of scenarios has a row for each test of a failover, and each row has a test."""

from __future__ import annotations

import ast
import re

from scripts.setup.base import ROOT

E2E = ROOT / "tests" / "real" / "airflow"
PAGE = (ROOT / "docs" / "failover.md").read_text()
ELSEWHERE = {
    18: "test_hands.py",
    20: "test_restart_strategies.py",
    22: "test_over_connect.py",
    23: "test_session.py",
    28: "test_session.py",
}
"""Rows whose tests are not in a `test_failover*.py`."""


def numbered() -> list[int]:
    """Give the numbers in which tests of a failover end; row 21 has one for each transport."""
    functions = [
        each.name
        for path in sorted(E2E.glob("test_failover*.py"))
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    return sorted({int(found[1]) for name in functions if (found := re.search(r"_(\d+)$", name))})


def test_each_row_has_its_test_and_stands_once_and_in_order() -> None:
    rows = [int(found[1]) for found in re.finditer(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert rows == sorted({*numbered(), *ELSEWHERE})
    assert [each for each in ELSEWHERE.values() if not (E2E / each).exists()] == []
