"""How what Cairn logs in a driver is printed: with its level and source, so that the task's log can tell it apart."""

from __future__ import annotations

import logging

log = logging.getLogger("airflow_cairn")


def print_log_lines() -> None:
    """Print them as `LEVEL:airflow_cairn:text`, unless the application has set up logging or does so later.

    Python by itself prints a warning without either.
    """
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    log.addHandler(handler)
