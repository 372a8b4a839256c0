"""Snapshots written while the block goes on, and the author's step before the first of a stage (semantics A5, B5).

The synchronous part ends when the call returns: the plan is fixed, the author's step has run, the committer is chosen.
A thread does the rest. The block's end waits for all threads. A failed snapshot deletes its files and makes the stage
decline; a block that raises cancels the running snapshots, waits for their end, and deletes the rest.

The author's step runs once, or the stage does not acknowledge: before the first write that belongs to the checkpoint,
or at the block's end. Of several threads that write at once, the first runs the step and the others wait. A failed step
never runs again: its stage declines, even if the author caught the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Signal
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import CheckpointError, InvalidStateError
from ...storage.older_pythons import StrEnum
from ..execution.fence import RECHECK_S, cancel_jobs
from ..execution.transport import is_remote, job_tags
from ..stored.outputs import Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The outcome of a background snapshot (finished, discarded or still running) is decided once (semantics A5). Two
# parties act on it. The *writer* ends exactly once: it has finished or failed. The *block* may cancel the snapshot
# (stop it unless it is done) and discard it (none of it may count), as often as it likes. In any order, exactly one
# party keeps or deletes the files, and no party deletes before the writer has ended.


class State(StrEnum):
    """The state of a background snapshot."""

    RUNNING = "running"
    COMPLETED = "completed"
    DISCARDED = "discarded"


class Event(StrEnum):
    """An event in a background snapshot's life."""

    FINISH = "finish"
    """The writer has written everything."""
    FAIL = "fail"
    """The writer has ended without writing everything."""
    CANCEL = "cancel"
    """The block stops the snapshot, unless it is done."""
    DISCARD = "discard"
    """The block drops the snapshot, done or not."""


class Duty(StrEnum):
    """The next act of the party that caused the event."""

    NOTHING = "nothing"
    KEEP = "keep"
    """Make the files part of the acknowledgement."""
    DELETE = "delete"
    """Delete the files."""


TRANSITIONS = {
    (State.RUNNING, Event.FINISH): (State.COMPLETED, Duty.KEEP),
    (State.RUNNING, Event.FAIL): (State.DISCARDED, Duty.DELETE),
    (State.RUNNING, Event.CANCEL): (State.DISCARDED, Duty.NOTHING),
    (State.RUNNING, Event.DISCARD): (State.DISCARDED, Duty.NOTHING),
    (State.COMPLETED, Event.CANCEL): (State.COMPLETED, Duty.NOTHING),
    (State.COMPLETED, Event.DISCARD): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.FINISH): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.FAIL): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.CANCEL): (State.DISCARDED, Duty.NOTHING),
    (State.DISCARDED, Event.DISCARD): (State.DISCARDED, Duty.NOTHING),
}
"""Missing entries cannot happen: a writer that has finished does not end again."""


class AsyncOutcome:
    """The outcome of one background snapshot; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.state = State.RUNNING

    def apply(self, event: Event) -> Duty:
        """Apply an event, and return its party's duty.

        Raises:
            InvalidStateError: a writer ended twice.
        """
        with self._lock:
            found = TRANSITIONS.get((self.state, event))
            if found is None:
                raise InvalidStateError("a background snapshot ended twice", state=self.state, by=event)
            self.state, duty = found
            return duty


class BackgroundSnapshotError(CheckpointError):
    """A snapshot in the background failed; the stage declines (semantics A5)."""

    retry_cures = True


class BackgroundSnapshot:
    """One output written by a thread, with Spark jobs marked by `tag`; `delete` raises nothing."""

    def __init__(
        self, spark: SparkSession, output_id: str, tag: str, write: Callable[[], Stored], delete: Callable[[], None]
    ) -> None:
        from pyspark import InheritableThread

        self.output_id = output_id
        self.stored: Stored | None = None
        """The output, once it has been written."""
        self.error: BaseException | None = None
        """The error, once the write has failed and the files are deleted."""
        self._tags = job_tags(spark)
        self._tag = tag
        self._write = write
        self._delete = delete
        self._outcome = AsyncOutcome()
        self._ended = Signal()
        # The thread has the block's own local properties: scheduler pool, job description, tags.
        more: dict[str, Any] = {"session": spark} if is_remote(spark) else {}  # Spark 3.5 lacks this argument
        self._thread = InheritableThread(target=self._run, name=f"cairn {output_id}", daemon=True, **more)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        """Wait until the writer has ended, and has deleted its files if it must."""
        self._ended.wait()

    def cancel(self) -> None:
        """Stop the snapshot unless it is done; it may go on for a moment."""
        self._outcome.apply(Event.CANCEL)
        cancel_jobs(self._tags, self._tag)

    def discard(self) -> None:
        """Wait until the writer has ended, and delete the files that are left."""
        while not self._ended.wait(RECHECK_S):
            cancel_jobs(self._tags, self._tag)
        if self._outcome.apply(Event.DISCARD) is Duty.DELETE:
            self._delete()

    def _run(self) -> None:
        if self._outcome.state is State.DISCARDED:
            # Cancelled before it began: nothing is written (semantics A5).
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
        with self._lock:
            self._all.append(snapshot)
        snapshot.start()

    def check(self) -> None:
        """Check that no snapshot has failed so far.

        Raises:
            BackgroundSnapshotError: a snapshot has failed; its files are deleted.
        """
        for snapshot in self._all:
            if snapshot.error is not None:
                raise BackgroundSnapshotError(
                    f"the snapshot {snapshot.output_id} failed in the background: {snapshot.error}", stage=self._stage
                ) from snapshot.error

    def finish(self) -> dict[str, Stored]:
        """Wait for all snapshots, and return their outputs by `Output.id`."""
        for snapshot in self._all:
            snapshot.wait()
            self.check()
        return {each.output_id: each.stored for each in self._all if each.stored is not None}

    def abort(self) -> None:
        """Stop all running snapshots, wait for their end, and delete the files that are left."""
        for snapshot in self._all:
            snapshot.cancel()
        for snapshot in self._all:
            snapshot.discard()


class BeforeSnapshot:
    """Holds and runs the step."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = RLock()
        self._step: Callable[[], object] | None = None
        self._begun = self._running = False
        self._failure: BaseException | None = None
        self.took_ms = 0

    def set(self, step: Callable[[], object]) -> None:
        """Register the step.

        Raises:
            InvalidStateError: the step cannot be called, there is a step already, or something was written before.
        """
        if not callable(step):
            raise InvalidStateError(
                "epoch.before_snapshot takes a function without arguments", found=type(step).__name__
            )
        with self._lock:
            if self._begun:
                raise InvalidStateError(
                    "epoch.before_snapshot came after the first snapshot or table; call it at the start of the block"
                )
            if self._step is not None:
                raise InvalidStateError(
                    "epoch.before_snapshot was called twice; do both things in one function", stage_steps=2
                )
            self._step = step

    def run(self) -> None:
        """Run the step, if there is one that has not run yet.

        Raises:
            InvalidStateError: the step itself writes, or has failed before.
        """
        with self._lock:
            if self._running:
                raise InvalidStateError(
                    "the step before the snapshot writes a snapshot or table itself; write it after the step, in the "
                    "block. Small values may be put in the step"
                )
            if self._failure is not None:
                raise InvalidStateError(
                    f"the step before the snapshot failed, so this stage cannot acknowledge: {self._failure!r}"
                ) from self._failure
            if self._begun:
                return
            self._begun = True
            if self._step is not None:
                self._run(self._step)

    def _run(self, step: Callable[[], object]) -> None:
        begin, self._running = self._now_ms(), True
        try:
            step()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._running = False
            self.took_ms = max(0, self._now_ms() - begin)
