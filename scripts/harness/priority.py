"""Has some processes give way to others on the same machine.

Linux shares the processor among sessions first, and niceness counts only within one (`man 7 sched`, autogroup). So a
session has a niceness of its own, which a new session does not inherit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOWEST = 19
"""The niceness of a session that is to take idle time only."""


def session_niceness(pid: int) -> int | None:
    """Give the niceness of a process's session; None where sessions have none."""
    try:
        words = _file(pid).read_text().split()
    except OSError:
        return None
    return int(words[-1]) if words else None


def set_session_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process's session, where sessions have one and this may be done."""
    with suppress(OSError):
        # Linux lets users other than root do so ten times a second, and a container may not let them at all. Then the
        # session keeps its place, and the tests take longer.
        _file(pid).write_text(str(niceness))


def pass_on(pid: int) -> None:
    """Give a session that this process has started the niceness of this process."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    if ours > 0:
        set_session_niceness(pid, ours)


def give_way(pid: int, niceness: int = 3, of_session: int | None = None) -> None:
    """Have a session that this process has started give way to all others.

    The niceness of the processes cannot be taken back everywhere; that of the session `set_session_niceness` may take
    back; None: the same.
    """
    os.setpriority(os.PRIO_PROCESS, pid, max(niceness, os.getpriority(os.PRIO_PROCESS, pid)))
    set_session_niceness(pid, niceness if of_session is None else of_session)


def _file(pid: int) -> Path:
    return Path(f"/proc/{pid}/autogroup")
