"""The fence checks, before work and before and during writes, that the driver is still needed (semantics B4, F3, W4).

So a driver that is no longer needed stops, instead of computing for another hour. The fence only looks. The head
decides afterwards, when it judges the acknowledgement.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

from ...checkpoint.acts.acknowledgements import ExecutionReports, Standing
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.errors import FencedError
from ...checkpoint.reasons import Status, cause_first
from ...checkpoint.store import acks
from ...storage.errors import CairnError
from .transport import JobTags, job_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("airflow_cairn")

LOOK_EVERY_MS = 10_000
"""A write within this time after a look does not look again, so that many small writes cost no more."""


class Fence:
    """Stops a driver whose execution can no longer count; safe to use from several threads."""

    def __init__(self, reports: ExecutionReports, handover: Handover, now_ms: Callable[[], int]) -> None:
        self._reports = reports
        self._handover = handover
        self._now_ms = now_ms
        self._lock = Lock()
        self._looked_at_ms: int | None = None
        self._error: FencedError | None = None

    def enter(self) -> int | None:
        """Check before work begins.

        Only a driver that a cluster may have started a second time looks whether the execution has acknowledged. That
        look can only save work: of two drivers the first marker counts, and the other's files are left to the cleaner.

        Returns:
            The time when the checkpoint was triggered, in milliseconds since 1970; None if the head has forgotten it.

        Raises:
            FencedError: the execution can no longer count, or is known to have acknowledged.
            CairnError: the head, or the pending attempt's document, cannot be read.
        """
        standing = self._reports.standing(self._handover)
        why = _why_not(self._handover, standing)
        if why is not None:
            raise why
        it = self._handover
        if it.durable and acks.has_acknowledged(self._reports.files, it.stage, it.execution):
            raise already_acknowledged(it)
        self._looked_at_ms = self._now_ms()
        return standing.triggered_at_ms

    def check(self) -> None:
        """Check before or during a write: one read of the head, at most every `LOOK_EVERY_MS`.

        A failed read is logged, and the driver goes on: the check can only save work.
        """
        with self._lock:
            self.raise_if_stopped()
            now_ms = self._now_ms()
            if self._looked_at_ms is not None and 0 <= now_ms - self._looked_at_ms < LOOK_EVERY_MS:
                return
            self._looked_at_ms = now_ms
            try:
                standing = self._reports.standing(self._handover)
            except CairnError as problem:
                log.warning("Could not find out whether this attempt still counts; the driver goes on. %s", problem)
                return
            self._error = _why_not(self._handover, standing)
            self.raise_if_stopped()

    def raise_if_stopped(self) -> None:
        """Raise if a check has failed, without a new one.

        Raises:
            FencedError: a check has failed. A block that caught the error did not write its output.
        """
        if self._error is not None:
            raise self._error


def _why_not(handover: Handover, standing: Standing) -> FencedError | None:
    """Return the error of an execution that can no longer count; None if it still may."""
    if standing.may_count:
        return None
    if standing.completed is not None:
        without = " without this stage" if standing.left_out else ""
        return replaced(handover, f"checkpoint {standing.completed} has completed the epoch{without}")
    if standing.attempt is not None:
        newer = standing.attempt
        return replaced(handover, f"attempt {newer.attempt}, checkpoint {newer.id}, runs the stage now")
    ended = standing.ended
    how = cause_first(ended.detail, ended.reason) if ended else "so long ago that the history has forgotten how"
    if ended is not None and ended.status is Status.COMPLETED:
        how = f"checkpoint {ended.id} had completed, and the job was rewound since"
    return FencedError(
        f"the epoch's checkpoint has ended ({how}), and no attempt that follows takes this execution over. What it "
        "wrote is discarded; the next try of the stage runs it anew",
        **_facts(handover),
    )


def replaced(handover: Handover, why: str) -> FencedError:
    """Make the error for a driver whose attempt no longer counts."""
    return FencedError(
        f"this attempt has been replaced: {why}. What it wrote is discarded; there is nothing to repair, the current "
        "attempt does the work",
        **_facts(handover),
    )


def already_acknowledged(handover: Handover) -> FencedError:
    """Make the error for the second driver of one execution."""
    return FencedError(
        "this stage has been acknowledged already, by an earlier driver of this attempt or an earlier epoch block of "
        "this application. That result counts, and the cleaner deletes this one; use one block an application",
        **_facts(handover),
    )


def _facts(handover: Handover) -> dict[str, object]:
    return {
        "job": handover.job,
        "epoch": layout.run_id_of(handover.epoch),
        "stage": handover.stage,
        "checkpoint": handover.checkpoint,
        "attempt": handover.attempt,
    }


class EndSignal:
    """SIGTERM in a process that runs an application, and the write that it waits for (semantics A5).

    A Spark Connect server aborts a write only some time after it was told to. A client that does not wait for the
    server's answer would delete files while they are being written. So a signal during a write cancels the write, the
    server's answer ends it, and then the process ends. The signal's handler is `handle`.
    """

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


RECHECK_S = 0.2
"""Seconds between two cancellations."""


@contextmanager
def stopping(fence: Fence, spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the Spark jobs that this thread starts in the block once they are no longer needed.

    A stage's whole work may be one write. During it a thread checks the fence as often as the fence allows. Once the
    execution can no longer count, the thread cancels the write's jobs by their tag, repeatedly until the write has
    ended: Spark cancels only running jobs, and the write may be between two of them.
    """
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
    while not news.wait(LOOK_EVERY_MS / 1000):
        try:
            fence.check()
        except FencedError as why:
            log.warning("A write is stopped: %s", why)
            break
    while not ended.is_set():
        cancel_jobs(tags, tag)
        ended.wait(RECHECK_S)
