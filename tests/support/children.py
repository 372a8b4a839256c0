"""Child processes that a test talks with over their pipes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from scripts.setup.base import ROOT


@contextmanager
def ready(commands: Iterable[Sequence[str]], **options: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes, wait until each says that it is ready, and end all of them."""
    pipe = subprocess.PIPE
    started: list[subprocess.Popen[str]] = []
    try:
        started += (
            subprocess.Popen(each, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options)
            for each in commands
        )
        for process in started:
            assert line_of(process) == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Write a line to its standard input."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def line_of(process: subprocess.Popen[str]) -> str:
    """Wait for its next line; a child that ended instead fails the test with what it wrote to standard error."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    return line
