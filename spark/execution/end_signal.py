"""The signal to end this process, and the write that it waits for (semantics A5).

A Spark Connect server aborts a write only after it was told to, and a client that no longer waits for the server's
answer would delete beside what is still being written. So a signal that comes during a write does not end the write's
thread: the write is cancelled, the server's answer ends it, and then the process ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import current_thread, main_thread
from types import FrameType


class EndSignal:
    """SIGTERM in a process that an application runs in; its handler is `handle`."""

    def __init__(self) -> None:
        self.told = SimpleQueue[int]()
        """Gets the signal's number, once. A handler may put into such a queue at any moment."""
        self._number: int | None = None
        self._cancels: list[Callable[[], None]] = []

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """End the process as soon as no write runs in the main thread; a second signal changes nothing.

        Raises:
            SystemExit: no write runs.
        """
        signal.signal(number, signal.SIG_IGN)
        self._number = number
        self.told.put(number)
        if not self._cancels:
            raise SystemExit(128 + number)
        for cancel in self._cancels:
            cancel()

    @contextmanager
    def put_off(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Let a signal wait for the block's end; in another thread than the main one nothing changes.

        Args:
            cancel: called when the signal comes; it ends the block soon, and waits for nothing itself.

        Raises:
            SystemExit: a signal came, and the block has ended.
        """
        if current_thread() is not main_thread():
            yield
            return
        self._cancels.append(cancel)
        try:
            yield
        finally:
            self._cancels.remove(cancel)
            if self._number is not None:
                raise SystemExit(128 + self._number)


END_SIGNAL = EndSignal()
"""Of this process. Without its handler, as in the driver of a spark-submit, it does nothing."""
