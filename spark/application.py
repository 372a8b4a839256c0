"""The Spark application as its driver names it: a line of its output, from which the task knows where its UI is.

Written where the driver runs below the task, or is a client of a Spark Connect server. On a cluster nothing reads it.
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
"""How the line begins; JSON follows."""

_LOGGED, _ID, _DEPLOY_MODE = "spark.eventLog.enabled", "spark.app.id", "spark.submit.deployMode"
READ = (_LOGGED, _ID, _DEPLOY_MODE)
"""The settings of a session that say what its application is."""


@dataclass(frozen=True, slots=True)
class Application:
    """One Spark application."""

    id: str
    """Its id in Spark, by which a history server knows it."""
    ui: str = ""
    """The address of its UI, which ends with it; empty where the driver does not know it."""
    logged: bool = False
    """Whether it writes an event log, without which a history server does not have it."""
    attempt: str = ""
    """Which attempt of it the history server has, where it counts them: on YARN in cluster mode."""

    @classmethod
    def of(cls, spark: SparkSession, conf: Mapping[str, str | None]) -> Application | None:
        """Describe the application of a session; None where it cannot be found out, or nothing would read it.

        Args:
            spark: the session.
            conf: its settings `READ`.
        """
        logged = conf[_LOGGED] == "true"
        if is_remote(spark):
            # The server's; a client does not know where its UI is.
            found = conf[_ID]
            return cls(found, logged=logged) if found else None
        if conf[_DEPLOY_MODE] == "cluster":
            return None
        context = spark.sparkContext
        return cls(context.applicationId, context.uiWebUrl or "", logged)

    def line(self) -> str:
        """Give the line of output that says so."""
        return MARK + json.dumps(asdict(self))

    @classmethod
    def in_line(cls, line: str) -> Application | None:
        """Read it; None if the line is another one."""
        if not line.startswith(MARK):
            return None
        try:
            found = cls(**json.loads(line.removeprefix(MARK)))
        except (ValueError, TypeError):
            return None
        texts = all(isinstance(each, str) for each in (found.id, found.ui, found.attempt))
        return found if texts and found.id and isinstance(found.logged, bool) else None


def announce(spark: SparkSession, conf: Mapping[str, str | None]) -> None:
    """Name the application in the driver's output: on stderr, for what an application prints is its own.

    Args:
        spark: the session.
        conf: its settings `READ`.
    """
    found = Application.of(spark, conf)
    if found is not None:
        say(found.line(), sys.stderr)
