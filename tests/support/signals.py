"""Signals that the processes of tests inherit, whichever process has started the tests."""

from __future__ import annotations

import signal
from types import FrameType

OFTEN_IGNORED = (signal.SIGINT, signal.SIGHUP)
"""A shell without job control starts what runs in the background with SIGINT ignored, and `nohup` with SIGHUP."""


def pass_no_ignored_signals_on() -> None:
    """Go on ignoring what this process was started to ignore, but by a handler: a child inherits no handlers.

    Without this, a process that a test ends by SIGINT would never hear of it.
    """
    for number in OFTEN_IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignored)


def _ignored(_number: int, _frame: FrameType | None) -> None: ...
