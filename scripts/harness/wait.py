"""Waits for a condition up to a deadline, and says what did not come.

A deadline only ends what hangs: it is several times what a busy machine needs, so that no speed decides a test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitTimeoutError(AssertionError):
    """A condition did not come true in time. The text names it and what was seen last."""


def wait_until(
    condition: Callable[[], T | None],
    timeout: float,
    what: str,
    *,
    interval: float | None = None,
    details: Callable[[], str] | None = None,
) -> T:
    """Ask `condition` until it gives something true.

    Args:
        condition: returns a true value when the wait is over; an exception of it ends the wait at once.
        timeout: seconds.
        what: what is waited for, for the message: "the run `r1` to succeed".
        interval: seconds between two questions, for a moment that is soon over. Without, they become rarer, from 0.1 s
            to half a second after ten seconds: each question costs the one who is asked.
        details: more text for the message, asked for only then (a log's tail, say).

    Raises:
        WaitTimeoutError: the deadline passed.
    """
    began = time.monotonic()
    deadline = began + timeout
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        now = time.monotonic()
        left = deadline - now
        if left <= 0:
            more = f"\n{details()}" if details else ""
            raise WaitTimeoutError(f"waited {timeout:g} s for {what}; last answer: {answer!r}{more}")
        pause.wait(min(interval or max(0.1, min((now - began) / 20, 0.5)), left))
