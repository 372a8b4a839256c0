"""Whether the state that an epoch starts from has read its window already (semantics T8).

A job without a source reads the data interval of its run. A manual run, a backfill or another schedule may give a
second run the same interval, and reading it again would count it twice. Pure functions of the head, the checkpoint that
is restored, and the epoch's slice: what is true of an epoch may change with the next checkpoint, so it is judged anew
for each attempt.
"""

from __future__ import annotations

import shlex
from datetime import timedelta

from ..answers import AlreadyRead, InputRefused
from ..decisions.restore_choice import RestoreChoice
from ..documents.attempt import Slice
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..documents.read_windows import Overlap, ReadWindow, ReadWindows, unknown_before
from ..documents.run_window import window_read_by
from ..errors import AlreadyReadError

INTERVAL = "the run's data interval"
"""What a refusal names as the source."""

NO_INTERVAL = (
    "the run has no data interval, or one without length, so its stages would read nothing. Trigger it with a logical "
    "date on a schedule that has intervals (CronDataIntervalTimetable), give the group the source DataInterval(), "
    "which reads up to the run's date, or say reads_window=False if the stages read no window of time"
)
"""What is said of a run that would read nothing by accident."""

AGAIN = 'trigger a run with the conf {"cairn": {"read_again": true}}'
"""How an author reads a window again, for texts."""


def read_by(choice: RestoreChoice) -> ReadWindows:
    """Give what an attempt starts with: the windows that the restored state has read, and those to be replayed.

    A checkpoint of version 0.1 says only what its own epoch read.
    """
    found = choice.read
    own = window_read_by(choice.slice) if choice.slice is not None else None
    if not found and own is not None:
        found = unknown_before(own)
    for epoch in choice.replay:
        window = window_read_by(epoch.slice)
        found = found if window is None else found.having(window)
    return found


def judge(head: Head, choice: RestoreChoice, epoch: str, slice_: Slice) -> AlreadyRead | InputRefused | None:
    """Say whether an epoch's first attempt, or one that is triggered again, may read its window.

    Returns:
        None where it may.
    """
    if is_empty(slice_):
        # The last run of a job that drains reads nothing on purpose (semantics P2).
        return None if head.drains(epoch) else InputRefused(INTERVAL, NO_INTERVAL)
    window, read = window_read_by(slice_), read_by(choice)
    if window is None or slice_.again:
        return None
    overlap = read.overlap(window)
    if overlap is Overlap.NONE:
        return None
    if overlap is Overlap.UNKNOWN:
        return InputRefused(
            INTERVAL,
            f"whether {window} has been read is not known: the job remembers what it has read from {read.exact_from} "
            f"on. Nothing was read. If no run has read it yet, {AGAIN}, which reads it without this check",
        )
    holder, back_to = _holder(head, choice, window), _back_to(head, window)
    if overlap is Overlap.ALL:
        return AlreadyRead(epoch, str(window), holder, back_to)
    shared = ", ".join(str(each) for each in read.shared(window)[:3])
    back = f"go back to before it by `cairn rewind {head.job} --to {back_to}`, or " if back_to else ""
    return InputRefused(
        INTERVAL,
        f"some of {window} has been read: checkpoint {holder} has read {shared}. Nothing was read. Trigger a run for "
        f"what is left, or {back}{AGAIN}, which reads all of {window}",
    )


def is_empty(slice_: Slice) -> bool:
    """Tell whether a slice is a window without length; one that names no window is none."""
    return slice_.start is not None and slice_.start == slice_.end


def gap_before(choice: RestoreChoice, slice_: Slice, dag_id: str | None) -> tuple[str, ...]:
    """Say in a line for the log that no run has read what lies between the newest window read and the epoch's."""
    window, newest = window_read_by(slice_), read_by(choice).newest
    if window is None or newest is None or window.start <= newest:
        return ()
    said = f"no run has read {ReadWindow(newest, window.start)}: a backfill can read it later"
    if dag_id is None:
        return (said,)
    return (f"{said}: `{backfill_of(ReadWindow(newest, window.start), dag_id)}`",)


def backfill_of(gap: ReadWindow, dag_id: str) -> str:
    """Give the command that has Airflow make the runs of a gap."""
    # The last date counts in Airflow, and the run after the gap has that of the gap's end.
    last = gap.end - timedelta(seconds=1)
    dates = f"--from-date {gap.start.isoformat()} --to-date {last.isoformat()}"
    return f"airflow backfill create --dag-id {shlex.quote(dag_id)} {dates} --reprocess-behavior failed"


def read_after(choice: RestoreChoice, epoch: str, slice_: Slice, *, job: str) -> ReadWindows:
    """Give what the job will have read when an attempt completes.

    Raises:
        AlreadyReadError: another epoch has read some of it since this one was triggered.
    """
    window, read = window_read_by(slice_), read_by(choice)
    if window is None:
        return read
    if not slice_.again and read.overlap(window) in (Overlap.ALL, Overlap.SOME):
        raise AlreadyReadError(
            "another run has read some of this run's window since it was triggered, so it would be counted twice. Run "
            "(or clear) the task that triggers the checkpoint, which says what is left to do",
            job=job,
            epoch=run_id_of(epoch),
            window=str(window),
            read=", ".join(str(each) for each in read.shared(window)[:3]),
        )
    return read.having(window)


def _holder(head: Head, choice: RestoreChoice, window: ReadWindow) -> int:
    found = (each.id for each in head.completed if each.read.overlap(window) in (Overlap.ALL, Overlap.SOME))
    return next(found, choice.pointer.checkpoint if choice.pointer else 0)


def _back_to(head: Head, window: ReadWindow) -> int | None:
    free = [each.id for each in head.completed[:-1] if each.read and each.read.overlap(window) is Overlap.NONE]
    return max(free, default=None)
