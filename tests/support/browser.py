"""Runs scripts that drive a real Chromium, and gives what they have found."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.setup.browser import ensure_browser


def found_by(script: Path, *words: str, timeout: float = 550) -> dict[str, Any]:
    """Run a script; gives the object that it prints last, as JSON.

    Args:
        script: for node; finds the modules and the browser by the environment, as `tests/real/page/browser.mjs`.
        words: its arguments.
        timeout: seconds.
    """
    command, env = _started_by(script, words)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Browser:
    """A script that keeps its Chromium open and does one thing after another.

    Args:
        process: the script; it answers each line of JSON with one.
        errors: the file that takes what it says of errors.
    """

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def ask(self, what: str, **facts: Any) -> dict[str, Any]:
        """Have it do one thing; gives what it has found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **facts}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the script ended at {what} {facts}:\n{self._errors.read_text()[-4000:]}"
        return dict(json.loads(answer))


@contextmanager
def open_browser(script: Path, *words: str) -> Iterator[Browser]:
    """Start a script that answers line by line, and end it afterwards.

    Args:
        script: as for `found_by`; it ends with its input.
        words: its arguments.
    """
    command, env = _started_by(script, words)
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "errors")
        with (
            errors.open("w") as said,
            subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=said, text=True) as process,
        ):
            yield Browser(process, errors)


def _started_by(script: Path, words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    browser = ensure_browser()
    env = {
        **os.environ,
        "BROWSER_PROGRAM": str(browser.program),
        "BROWSER_LIBRARIES": str(browser.libraries),
        "BROWSER_MODULES": str(browser.modules),
    }
    return [str(browser.node), str(script), *words], env
