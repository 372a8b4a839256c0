"""Talking with a child process over its pipes."""

from __future__ import annotations

import subprocess

import pytest


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
