"""A time that is over once a log has said something, so that no speed of a machine decides a test."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_cairn.hooks.driver_output import spark


class OnceSaid(logging.Handler):
    """Stands in for `threading.Timer`: acts when Spark's log says a text, whatever the clock says.

    Handlers that were added before it have seen the line by then.

    Args:
        text: a part of the line.
        act: what the timer would call.
    """

    def __init__(self, text: str, act: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._text = text
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        """Act, if this is the line."""
        if self._text in record.getMessage():
            self._act()

    def start(self) -> None:
        """Begin to listen."""
        spark.addHandler(self)

    def cancel(self) -> None:
        """Stop listening."""
        spark.removeHandler(self)
