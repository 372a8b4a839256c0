"""Cairn's own lines in a driver's output: a mark tells the task which lines they are (semantics V5).

The mark is new for each run and travels in the environment. So no line that an application prints from its input passes
for Cairn's. Without a mark, where no task reads the lines, they are printed bare. One line announces the application,
so that the task knows where its UI is; on a cluster nothing reads it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, TextIO

from ...storage.clock import new_token
from ...storage.records import dataclass
from .transport import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

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


MARK = "cairn-spark-application "
"""Prefix of the line; JSON follows."""

_LOGGED, _ID, _DEPLOY_MODE = "spark.eventLog.enabled", "spark.app.id", "spark.submit.deployMode"
READ = (_LOGGED, _ID, _DEPLOY_MODE)
"""The settings of a session that describe its application."""


@dataclass(frozen=True, slots=True)
class Application:
    """One Spark application."""

    id: str
    """The application's id in Spark; a history server finds the application by it."""
    ui: str = ""
    """The address of the UI, which ends with the application; empty if the driver does not know it."""
    logged: bool = False
    """True if the application writes an event log, without which a history server does not have it."""
    attempt: str = ""
    """The application's attempt number in the history server, where it has one: on YARN in cluster mode."""

    @classmethod
    def of(cls, spark: SparkSession, conf: Mapping[str, str | None]) -> Application | None:
        """Describe the application of a session; None if its facts are unknown, or if nothing would read them.

        Args:
            spark: the session.
            conf: its settings `READ`.
        """
        logged = conf[_LOGGED] == "true"
        if is_remote(spark):
            # This is the server's UI; a client does not know its address.
            found = conf[_ID]
            return cls(found, logged=logged) if found else None
        if conf[_DEPLOY_MODE] == "cluster":
            return None
        context = spark.sparkContext
        return cls(context.applicationId, context.uiWebUrl or "", logged)

    def line(self) -> str:
        """Format the line of output."""
        return MARK + json.dumps(asdict(self))

    @classmethod
    def in_line(cls, line: str) -> Application | None:
        """Parse a line of output; None for any other line."""
        if not line.startswith(MARK):
            return None
        try:
            found = cls(**json.loads(line.removeprefix(MARK)))
        except (ValueError, TypeError):
            return None
        texts = all(isinstance(each, str) for each in (found.id, found.ui, found.attempt))
        return found if texts and found.id and isinstance(found.logged, bool) else None


def announce(spark: SparkSession, conf: Mapping[str, str | None]) -> None:
    """Announce the application on stderr; stdout belongs to the application.

    Args:
        spark: the session.
        conf: its settings `READ`.
    """
    found = Application.of(spark, conf)
    if found is not None:
        say(found.line(), sys.stderr)
