"""The tests' processes can be ended by a signal, however the tests were started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.signals import OFTEN_IGNORED

ROOT = Path(__file__).parents[2]

_CHILD = "import signal, sys; print(signal.getsignal(int(sys.argv[1])) == signal.SIG_IGN)"
_STARTER = f"""
import os, signal, subprocess, sys
from tests.support.signals import pass_no_ignored_signals_on

def start():
    subprocess.run([sys.executable, "-c", {_CHILD!r}, sys.argv[1]], check=True)

signal.signal(int(sys.argv[1]), signal.SIG_IGN)
start()
pass_no_ignored_signals_on()
start()
os.kill(os.getpid(), int(sys.argv[1]))  # which it still ignores
"""


@pytest.mark.parametrize("number", OFTEN_IGNORED)
def test_a_child_hears_what_its_parent_ignores(number: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _STARTER, str(int(number))],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.stdout.split() == ["True", "False"]
