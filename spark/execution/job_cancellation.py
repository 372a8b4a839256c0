"""Cancels Spark jobs that are no longer needed: a stage's whole work may be one write (semantics B4).

During a write, a thread checks the fence as often as the fence allows. Once the execution can no longer count, the
thread cancels the write's jobs by their tag, repeatedly until the write has ended: Spark cancels only running jobs, and
the write may be between two of them.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

from ...checkpoint.errors import FencedError
from . import fence as fences
from .fence import Fence
from .transport import JobTags, job_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The signal that ends this process, and the write that it waits for (semantics A5). A Spark Connect server aborts a
# write only some time after it was told to. A client that does not wait for the server's answer would delete files
# while they are being written. So a signal during a write does not end the write's thread: the write is cancelled, the
# server's answer ends it, and then the process ends.


class EndSignal:
    """SIGTERM in a process that runs an application; its handler is `handle`."""

    def __init__(self) -> None:
        self.told = SimpleQueue[int]()
        """Receives the signal's number, once. A handler may put into this queue at any moment."""
        self._number: int | None = None
        self._cancels: list[Callable[[], None]] = []

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """End the process as soon as no write runs in the main thread; further signals change nothing.

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
        """Delay a signal until the block's end; only in the main thread.

        Args:
            cancel: called when the signal comes; makes the block end soon, and must not wait.

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
"""The process's signal. Without its handler, as in the driver of a spark-submit, it does nothing."""


log = logging.getLogger("airflow_cairn")

RECHECK_S = 0.2
"""Seconds between two cancellations."""


@contextmanager
def stopping(fence: Fence, spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the Spark jobs that this thread starts in the block once they are no longer needed."""
    tags, ended, news = job_tags(spark), Event(), Event()
    watch = Thread(target=_watch, args=(fence, tags, tag, ended, news), name=f"cairn watches {tag}", daemon=True)
    tags.add(tag)
    watch.start()
    try:
        with END_SIGNAL.put_off(news.set):
            yield
    except Exception:
        # Raise the reason of the cancellation; the cancellation is its context.
        fence.raise_if_stopped()
        raise
    finally:
        ended.set()
        news.set()
        watch.join()
        tags.remove(tag)


def cancel_jobs(tags: JobTags, tag: str) -> None:
    """Cancel the running jobs with a tag."""
    try:
        tags.cancel(tag)
    except Exception as problem:  # noqa: BLE001 - if Spark is gone, so are the jobs
        log.warning("The jobs of %s could not be cancelled: %s", tag, problem)


def _watch(fence: Fence, tags: JobTags, tag: str, ended: Event, news: Event) -> None:
    while not news.wait(fences.LOOK_EVERY_MS / 1000):
        try:
            fence.check()
        except FencedError as why:
            log.warning("A write is stopped: %s", why)
            break
    while not ended.is_set():
        cancel_jobs(tags, tag)
        ended.wait(RECHECK_S)
