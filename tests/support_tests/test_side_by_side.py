"""Tests of tests/real/airflow that run beside each other are reported as if they had run alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.setup.base import ROOT
from tests.real.airflow import side_by_side

pytestmark = pytest.mark.large

REPORT = "report.xml"

CONFTEST = """
import threading, pytest
from tests.real.airflow import side_by_side

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not side_by_side.is_marked(pyfuncitem):
        return None
    side_by_side.run(pyfuncitem, lambda item, name: pyfuncitem._request.getfixturevalue(name))
    return True

@pytest.fixture(scope="session")
def shared():
    return threading.Barrier(side_by_side.AT_ONCE)

@pytest.fixture(scope="session")
def gates():
    return []
"""

BESIDE = """
import pytest
pytestmark = pytest.mark.side_by_side

def test_one(shared, gates): shared.wait(300); gates.append(1)
def test_two(shared, gates): shared.wait(300); gates.append(2)
@pytest.mark.parametrize("number", [3, 4])
def test_with(number, shared, gates): shared.wait(300); gates.append(number)
def test_wrong(gates): assert gates == "wrong"
"""

ALONE = """
def test_after_all_of_them(gates): assert sorted(gates) == [1, 2, 3, 4]
"""

OWN = """
import pytest

@pytest.mark.side_by_side
def test_own(tmp_path): pass
"""


def played(folder: Path, **files: str) -> str:
    """Run files of tests in a pytest of their own; gives what it says, and leaves a report of it."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = side_by_side: as in tests/e2e\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", f"--junitxml={folder / REPORT}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout


def test_four_meet_and_one_fails(tmp_path: Path) -> None:
    said = played(tmp_path, a_beside=BESIDE, b_alone=ALONE)
    assert "1 failed, 5 passed" in said, said
    assert "FAILED test_a_beside.py::test_wrong" in said
    assert (tmp_path / REPORT).read_text().count(f'<property name="{side_by_side.SECONDS}"') == 4


def test_what_is_its_own_cannot_be_asked_for(tmp_path: Path) -> None:
    said = played(tmp_path, own=OWN)
    assert "asks for what is its own: ['tmp_path']" in said, said
