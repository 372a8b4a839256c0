"""Cairn's own lines in a driver's output: a mark tells the task which lines they are (semantics V5).

The mark is new for each run and travels in the environment. So no line that an application prints from its input passes
for Cairn's. Without a mark, where no task reads the lines, they are printed bare.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TextIO

from ...storage.clock import new_token

log = logging.getLogger("airflow_cairn")

VARIABLE = "CAIRN_OUTPUT_MARK"
"""The environment variable with the mark, for a driver that runs below the task."""


def new_mark() -> str:
    """Make a mark for one run."""
    return f"cairn-{new_token()} "


@cache
def _mark() -> str:
    # Remove the variable, so that programs started by the application do not inherit it.
    return os.environ.pop(VARIABLE, "")


def say(text: str, stream: TextIO) -> None:
    """Print a line for the task.

    Args:
        text: one line.
        stream: stdout or stderr of this process.
    """
    stream.write(f"{_mark()}{text}\n")
    stream.flush()


def marked(line: str, mark: str) -> tuple[str, str | None]:
    """Split a driver's line into the application's text and Cairn's text behind the mark; None without a mark.

    Args:
        line: the printed line. The application may have left its own line open.
        mark: the run's mark.
    """
    printed, found, said = line.partition(mark)
    return printed, said if found else None


def print_log_lines() -> None:
    """Print Cairn's log as `LEVEL:airflow_cairn:text`, unless the application sets up logging, now or later.

    By default Python prints warnings without level and logger.
    """
    mark = _mark()
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{mark}{logging.BASIC_FORMAT}"))
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    log.addHandler(handler)
