"""Passes a driver's output on to the task's log: folds Spark's chatter, shows warnings and errors.

Airflow's log viewer folds the lines between `::group::` and `::endgroup::`. It hides everything after a group that was
never closed, so each group is closed before the next visible line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..checkpoint.masking import MAX_DETAIL, masked
from ..storage.errors import printable

cairn = logging.getLogger("airflow_cairn")
spark = logging.getLogger("spark")
"""Source of driver lines that are not Cairn's."""

CHATTER = "Spark's log"
TRACE = "Trace"
"""Names of the folds."""

_BEGIN, _END = "::group::", "::endgroup::"
_LEVELS = {"WARN": logging.WARNING, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR}

_OF_CAIRN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):airflow_cairn:(?P<text>.*)", re.DOTALL)
"""The format of `logging.BASIC_FORMAT`, as a driver prints it."""
_OF_SPARK = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) |"
    r'\{"ts":"[^"]*","level":"(?P<structured>[A-Z]+)"'
)
"""The pattern of Spark's own log4j profile, and its structured log."""
_BEFORE_THE_LOG = re.compile(
    r"WARNING: (Using incubator modules|Unable to find|package .* not in)|Using Spark's default log4j profile"
    r"|Setting default log level|To adjust logging level|SLF4J: |Picked up _?JAVA|\[Stage \d+:"
    r"|:: (loading|resolving|resolution|retrieving|problems)|Ivy Default|The jars for|downloading https?://"
    r"|\S+ added as a dependency|confs: \["
)
"""Lines without a level from the JVM, Ivy and `spark-submit`, and the progress bar."""
_ERROR = re.compile(r"Exception in thread |Error: |Error occurred during |\S*python\S*: can't open file")
"""Beginnings of errors that the JVM, `spark-submit` or Python's launcher prints without a level."""
_TRACEBACK = "Traceback (most recent call last):"
_OF_A_TRACE = re.compile(r"\s+\S|Caused by: |Suppressed: |[\w.$]+(Exception|Error|Throwable)\b|JVM stacktrace:")


class DriverOutput:
    """Passes on the lines of one driver, in order and at once. Use it through `driver_output`, which closes it.

    Each line is one of these: a line of Cairn, which keeps its level and gets Cairn's logger; a warning or an error of
    Spark, visible at its level, with its trace folded below; Spark's chatter, folded; a Python traceback, folded, with
    its last line visible as an error; or any other output of the application, visible.
    """

    def __init__(self) -> None:
        self._fold: str = ""
        self._in_traceback = False
        self._after = logging.INFO
        self._groups = 0
        self._raised = ""
        self._last_error = ""

    def cause(self, environ: Mapping[str, str]) -> str:
        """Return the line that says why the driver failed; empty if there is none.

        That is the last line of its last traceback, or an error that the JVM or the launcher printed after it: the
        application may have caught the traceback's exception. Otherwise it is the last error in Spark's log.

        Credentials in the driver's environment are masked.
        """
        return printable(masked(self._raised or self._last_error, environ=environ))[:MAX_DETAIL]

    def line(self, raw: str, *, own: bool = False) -> None:
        """Pass on one line.

        The line has its indentation, which identifies a trace. `own` tells whether it has the mark of Cairn's own
        lines: a line that only looks like one is the application's.
        """
        text = raw.rstrip()
        if not text:
            return
        of_cairn = _OF_CAIRN.match(text)
        of_spark = _OF_SPARK.match(text)
        if of_cairn is not None:
            logger, said = (cairn, of_cairn["text"]) if own else (spark, text)
            self._show(logger, logging.getLevelNamesMapping()[of_cairn["level"]], said)
        elif of_spark is not None:
            level = _LEVELS.get(of_spark["level"] or of_spark["structured"])
            if level is None:
                self._into(CHATTER, text)
            else:
                self._show(spark, level, text)
                if level == logging.ERROR:
                    self._last_error = text if of_spark["structured"] else text[of_spark.end() :]
        elif text == _TRACEBACK:
            self._into(TRACE, text)
            self._in_traceback = True
        elif self._in_traceback:
            if text[0].isspace():
                self._into(TRACE, text)
            else:
                self._show(spark, logging.ERROR, text)
                self._raised = text
        elif _BEFORE_THE_LOG.match(text.lstrip()) or (self._fold == CHATTER and text[0].isspace()):
            self._into(CHATTER, text)
        elif _ERROR.match(text):
            self._show(spark, logging.ERROR, text)
            self._last_error, self._raised = text, ""
        elif self._after > logging.INFO and _OF_A_TRACE.match(text):
            self._into(TRACE, text)
        else:
            self._show(spark, logging.INFO, text)

    def close(self) -> None:
        """Close open groups: Cairn's, and those that the application left open."""
        self._unfold()
        while self._groups:
            self._say(spark, logging.INFO, _END)

    def _show(self, logger: logging.Logger, level: int, text: str) -> None:
        self._unfold()
        self._in_traceback = False
        self._after = level
        self._say(logger, level, text)

    def _into(self, fold: str, text: str) -> None:
        if self._fold != fold:
            self._unfold()
            self._say(spark, logging.INFO, _BEGIN + fold)
            self._fold = fold
        # A marker in the text would end the fold, or begin another.
        text = text.replace(_BEGIN, "[group]").replace(_END, "[endgroup]")
        if fold == CHATTER:
            self._after = logging.INFO
        spark.info("%s", text)

    def _unfold(self) -> None:
        if self._fold:
            self._fold = ""
            self._say(spark, logging.INFO, _END)

    def _say(self, logger: logging.Logger, level: int, text: str) -> None:
        # Count as the viewer does: an application may have groups of its own.
        if _BEGIN in text:
            self._groups += 1
        elif _END in text and self._groups:
            self._groups -= 1
        logger.log(level, "%s", text)


@contextmanager
def driver_output() -> Iterator[DriverOutput]:
    """Pass on a driver's output inside the block; close open folds at its end, also after an error."""
    output = DriverOutput()
    try:
        yield output
    finally:
        output.close()
