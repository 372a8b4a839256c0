"""Folder of downloaded and built things, and the few ways in which set-up speaks, runs commands and gives up."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
"""Ignored by git; `make clean` removes it."""


class SetupError(Exception):
    """Set-up cannot go on; the text is one line that says what to type."""


def say(text: str) -> None:
    """Tell the user about a step that takes time. Goes to stderr, so that stdout stays usable by callers."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


@contextmanager
def saying_how_far(part: str, every_s: float = 20.0) -> Iterator[None]:
    """Say now and then how long a part has taken, and how much has been received: on a slow line nothing else would."""
    began, before, over = time.monotonic(), _received(), threading.Event()

    def say_so() -> None:
        while not over.wait(every_s):
            seconds, now = int(time.monotonic() - began), _received()
            fetched = "" if before is None or now is None else f", {(now - before) / 1e6:,.0f} MB received"
            say(f"{part}: {seconds // 60} min {seconds % 60:02} s{fetched}")

    thread = threading.Thread(target=say_so, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _received() -> int | None:
    """Give the bytes that this machine has received; None where it does not say (Linux says)."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    except OSError:
        return None
    counts = (line.partition(":") for line in lines)
    return sum(int(values.split()[0]) for name, _, values in counts if name.strip() != "lo")


def run(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
    """Run a command whose output the user should see.

    Raises:
        SetupError: the program is missing or ended with another status than 0.
    """
    words = [str(word) for word in command]
    try:
        full = {**os.environ, **(env or {})}
        subprocess.run(words, check=True, env=full, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except FileNotFoundError as error:
        raise SetupError(f"`{words[0]}` is not installed") from error
    except subprocess.CalledProcessError as error:
        shown = textwrap.shorten(shlex.join(words), 160, placeholder=" …")
        raise SetupError(f"`{shown}` ended with status {error.returncode}") from error


_here = threading.RLock()
_depth = 0


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the set-up lock: two targets started together do not build the same thing twice.

    One step may need another (the jars need Java), so the process that holds it may take it again.
    """
    global _depth  # noqa: PLW0603 - guarded by _here
    with _here:
        if _depth:
            yield
            return
        CACHE.mkdir(exist_ok=True)
        with (CACHE / "setup.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            _depth = 1
            try:
                yield
            finally:
                _depth = 0
