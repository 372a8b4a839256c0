"""Calls foreign code with a bound on its time (semantics T7)."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from .errors import MasterHookError
from .head_text import one_line

T = TypeVar("T")


def call(hook: str, step: str, timeout: timedelta, work: Callable[[], T]) -> T:
    """Do one step of a hook in a thread of its own, and wait for it at most `timeout`.

    A thread cannot be stopped from outside. One that is late is left behind as a daemon, which does not keep its
    process from ending.

    Args:
        hook: the hook's name.
        step: the method, for the message.
        timeout: how long to wait.
        work: does it.

    Raises:
        MasterHookError: it raised, or was not done in time.
    """
    done: list[T] = []
    failures: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - foreign code; whatever it raises is told by the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name=f"cairn-hook-{hook}-{step}", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    if failures:
        raise MasterHookError(
            f"the master hook {hook} failed in {step}: {one_line(repr(failures[0]))}. Mend the hook, then run (or "
            "clear) this task again",
            hook=hook,
            step=step,
        ) from failures[0]
    if not done:
        raise MasterHookError(
            f"the master hook {hook} was not done with {step} after {timeout.total_seconds():g} s and was left behind. "
            "Find out what it waits for, or give it a longer `timeout`; then run (or clear) this task again",
            hook=hook,
            step=step,
            timeout=timeout,
        )
    return done[0]
