"""Progress of set-up while a part takes long."""

from __future__ import annotations

import re
from queue import Queue

import pytest

from scripts.setup import __main__ as setup
from scripts.setup import base


def test_a_part_that_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: Queue[str] = Queue()
    monkeypatch.setattr(base, "say", said.put)
    with base.saying_how_far("java", every_s=0.01):
        lines = [said.get(timeout=300) for _ in range(2)]
    assert all(re.fullmatch(r"java: 0 min \d\d s(, \d+ MB received)?", line) for line in lines), lines


def test_a_part_that_fails_ends_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []

    def failing() -> None:
        raise base.SetupError("no network")

    monkeypatch.setattr(setup, "_PARTS", {"venv": lambda: parts.append("venv"), "java": failing})
    assert setup.main([]) == 1
    assert parts == ["venv"]
