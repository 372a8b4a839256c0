"""Fixtures of the commands' tests: a person at the terminal."""

import os
import pty
from collections.abc import Callable, Iterator

import pytest

from tests.support.command import _one_epoch, cairn, root, wide

__all__ = ["_one_epoch", "cairn", "root", "wide"]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sits at a terminal of its own, and types one line."""
    keyboard, terminal = pty.openpty()

    def type_in(line: str) -> None:
        os.write(keyboard, f"{line}\n".encode())

    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield type_in
    os.close(keyboard)


@pytest.fixture(autouse=True)
def _parsed_documents(parsed_documents: None) -> None:
    """Each of these tests needs a job that has run; its documents are tested elsewhere."""
