"""Snapshots that are written while the block goes on (semantics A5, B5).

The short part is over when the call returns: the plan is fixed, the author's step has run, the committer is chosen.
A thread of its own does the rest. The block's end waits for all of them. One that fails deletes what it wrote and makes
the stage decline; a block that raises cancels what runs, waits until it has ended, and deletes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Signal
from threading import Lock
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import CheckpointError
from ..execution.job_cancellation import RECHECK_S, cancel_jobs
from ..execution.transport import is_remote, job_tags
from ..stored.outputs import Stored
from .async_outcome import AsyncOutcome, Duty, Event, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BackgroundSnapshotError(CheckpointError):
    """A snapshot that was written in the background failed; the stage declines (semantics A5)."""

    retry_cures = True


class BackgroundSnapshot:
    """One output that a thread of its own writes.

    Args:
        spark: the session whose jobs write it.
        output_id: `Output.id`.
        tag: tells its Spark jobs from all others.
        write: writes it.
        delete: deletes what it has written; raises nothing.
    """

    def __init__(
        self, spark: SparkSession, output_id: str, tag: str, write: Callable[[], Stored], delete: Callable[[], None]
    ) -> None:
        from pyspark import InheritableThread

        self.output_id = output_id
        self.stored: Stored | None = None
        """Set once it has been written."""
        self.error: BaseException | None = None
        """Set once it has failed, and what it wrote is deleted."""
        self._tags = job_tags(spark)
        self._tag = tag
        self._write = write
        self._delete = delete
        self._outcome = AsyncOutcome()
        self._ended = Signal()
        # It has the block's own local properties: scheduler pool, job description, tags.
        more: dict[str, Any] = {"session": spark} if is_remote(spark) else {}  # Spark 3.5 does not know the word
        self._thread = InheritableThread(target=self._run, name=f"cairn {output_id}", daemon=True, **more)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the writer has ended, and has deleted what it had to."""
        self._ended.wait()

    def cancel(self) -> None:
        """Stop it unless it is done; it may go on for a moment."""
        self._outcome.apply(Event.CANCEL)
        cancel_jobs(self._tags, self._tag)

    def discard(self) -> None:
        """Wait until the writer has ended, and see that nothing of it is left."""
        while not self._ended.wait(RECHECK_S):
            cancel_jobs(self._tags, self._tag)
        if self._outcome.apply(Event.DISCARD) is Duty.DELETE:
            self._delete()

    def _run(self) -> None:
        if self._outcome.state is State.DISCARDED:
            # Cancelled before it began: nothing was written, and nothing is (semantics A5).
            self._ended.set()
            return
        failure: BaseException | None = None
        try:
            self._tags.add(self._tag)
            stored = self._write()
        except BaseException as error:  # noqa: BLE001 - the block raises it
            failure = error
            duty = self._outcome.apply(Event.FAIL)
        else:
            self.stored = stored
            duty = self._outcome.apply(Event.FINISH)
        try:
            if duty is Duty.DELETE:
                self._delete()
        finally:
            self.error = failure
            self._ended.set()


class Background:
    """The background snapshots of one block."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._lock = Lock()
        self._all: list[BackgroundSnapshot] = []

    def start(self, snapshot: BackgroundSnapshot) -> None:
        """Begin to write one more."""
        with self._lock:
            self._all.append(snapshot)
        snapshot.start()

    def check(self) -> None:
        """See that none has failed so far.

        Raises:
            BackgroundSnapshotError: one has; what it wrote is deleted.
        """
        for snapshot in self._all:
            if snapshot.error is not None:
                raise BackgroundSnapshotError(
                    f"the snapshot {snapshot.output_id} failed in the background: {snapshot.error}", stage=self._stage
                ) from snapshot.error

    def finish(self) -> dict[str, Stored]:
        """Wait for all, and give what they have written, by `Output.id`.

        Raises:
            BackgroundSnapshotError: one has failed.
        """
        for snapshot in self._all:
            snapshot.wait()
            self.check()
        return {each.output_id: each.stored for each in self._all if each.stored is not None}

    def abort(self) -> None:
        """Stop all that run, wait until they have ended, and see that nothing of any is left."""
        for snapshot in self._all:
            snapshot.cancel()
        for snapshot in self._all:
            snapshot.discard()
