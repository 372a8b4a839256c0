"""What Cairn says in a driver, among all that the application prints: the task knows it by a mark (semantics V5).

The mark is new for each run, and travels by the environment. So no line of an input that an application prints is taken
for a word of Cairn's. Without one, where no task reads the lines, they are printed bare.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TextIO

from ...storage.clock import new_token

log = logging.getLogger("airflow_cairn")

VARIABLE = "CAIRN_OUTPUT_MARK"
"""The environment variable by which a driver that runs below the task gets its mark."""


def new_mark() -> str:
    """Make the mark of one run."""
    return f"cairn-{new_token()} "


@cache
def _mark() -> str:
    # Taken out: what the application starts does not get it.
    return os.environ.pop(VARIABLE, "")


def say(text: str, stream: TextIO) -> None:
    """Print a line for the task.

    Args:
        text: one line.
        stream: of this process.
    """
    stream.write(f"{_mark()}{text}\n")
    stream.flush()


def marked(line: str, mark: str) -> tuple[str, str | None]:
    """Divide a line of a driver into what the application printed, and what Cairn said behind it; None: nothing.

    Args:
        line: as it was printed. The application may have left its own line open.
        mark: of the run.
    """
    printed, found, said = line.partition(mark)
    return printed, said if found else None


def print_log_lines() -> None:
    """Print what Cairn logs as `LEVEL:airflow_cairn:text`, unless the application has set up logging or does so later.

    Python by itself prints a warning without either.
    """
    mark = _mark()
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{mark}{logging.BASIC_FORMAT}"))
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    log.addHandler(handler)
