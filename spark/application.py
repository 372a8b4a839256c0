"""The Spark application as its driver announces it: one line of output tells the task where the UI is.

The driver writes the line where it runs below the task or is a client of a Spark Connect server. On a cluster nothing
reads it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .execution.log_lines import say
from .execution.transport import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

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
