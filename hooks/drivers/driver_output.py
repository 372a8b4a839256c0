"""What a driver prints, passed on to the task's log: Spark's chatter folded away, warnings and errors in sight.

Airflow's log viewer folds what stands between the lines `::group::` and `::endgroup::`. It hides everything that
follows a group that was never closed, so each one is closed before anything else is said.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...checkpoint.secrets.masking import masked
from ...spark.execution.error_text import MAX_LENGTH
from ...storage.printable import printable

cairn = logging.getLogger("airflow_cairn")
spark = logging.getLogger("spark")
"""The source of each line that a driver prints and that is not Cairn's."""

CHATTER = "Spark's log"
TRACE = "Trace"
"""The names of what is folded."""

_BEGIN, _END = "::group::", "::endgroup::"
_LEVELS = {"WARN": logging.WARNING, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR}

_OF_CAIRN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):airflow_cairn:(?P<text>.*)", re.DOTALL)
"""As `logging.BASIC_FORMAT` writes it in a driver."""
_OF_SPARK = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) |"
    r'\{"ts":"[^"]*","level":"(?P<structured>[A-Z]+)"'
)
"""The pattern of Spark's own profile of log4j, and its structured log."""
_BEFORE_THE_LOG = re.compile(
    r"WARNING: (Using incubator modules|Unable to find|package .* not in)|Using Spark's default log4j profile"
    r"|Setting default log level|To adjust logging level|SLF4J: |Picked up _?JAVA|\[Stage \d+:"
    r"|:: (loading|resolving|resolution|retrieving|problems)|Ivy Default|The jars for|downloading https?://"
    r"|\S+ added as a dependency|confs: \["
)
"""What the JVM, Ivy and `spark-submit` print without a level, and the progress bar."""
_ERROR = re.compile(r"Exception in thread |Error: |Error occurred during |\S*python\S*: can't open file")
"""How an error begins that the JVM, `spark-submit` or Python's launcher prints without a level."""
_TRACEBACK = "Traceback (most recent call last):"
_OF_A_TRACE = re.compile(r"\s+\S|Caused by: |Suppressed: |[\w.$]+(Exception|Error|Throwable)\b|JVM stacktrace:")


class DriverOutput:
    """Passes on the lines of one driver, in order and at once. Use it in `driver_output`, which closes it.

    One line is one of these: Cairn's own, which keeps its level and has Cairn's logger; a warning or an error of Spark,
    in sight at its level, with its trace folded below; Spark's chatter, folded; a traceback of Python, folded, with its
    last line in sight as an error; and whatever else the application prints, in sight.
    """

    def __init__(self) -> None:
        self._fold: str = ""
        self._in_traceback = False
        self._after = logging.INFO
        self._groups = 0
        self._raised = ""
        self._last_error = ""

    def cause(self, environ: Mapping[str, str]) -> str:
        """Give the line that says why the driver failed; empty if no line does.

        That is the last line of its last traceback, or an error that the JVM or the launcher printed after it: a
        traceback may be one that the application has caught. Else the last error in Spark's log.

        Args:
            environ: the driver's environment: the credentials in it are masked.
        """
        return printable(masked(self._raised or self._last_error, environ=environ))[:MAX_LENGTH]

    def line(self, raw: str, *, own: bool = False) -> None:
        """Pass on one line.

        Args:
            raw: as the driver printed it, with its indentation: that is what tells a trace.
            own: whether it bears the mark of what Cairn says there. One that only looks so is the application's.
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
        """Close what is open: a group, and groups of the application's own that it left open."""
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
        # A mark in it would end the fold, or begin another.
        text = text.replace(_BEGIN, "[group]").replace(_END, "[endgroup]")
        if fold == CHATTER:
            self._after = logging.INFO
        spark.info("%s", text)

    def _unfold(self) -> None:
        if self._fold:
            self._fold = ""
            self._say(spark, logging.INFO, _END)

    def _say(self, logger: logging.Logger, level: int, text: str) -> None:
        # As the viewer counts: an application may have groups of its own.
        if _BEGIN in text:
            self._groups += 1
        elif _END in text and self._groups:
            self._groups -= 1
        logger.log(level, "%s", text)


@contextmanager
def driver_output() -> Iterator[DriverOutput]:
    """Pass on what a driver prints inside the block; what is folded is closed at its end, also by an error."""
    output = DriverOutput()
    try:
        yield output
    finally:
        output.close()
