"""Checks whether the state that an epoch starts from has read the epoch's window already (semantics T8).

A job without a source reads the data interval of its run. A manual run, a backfill or another schedule may give a
second run the same interval, and reading it again would count it twice. Pure functions of the head, the restored
checkpoint and the epoch's slice. The result may change with the next checkpoint, so each attempt is checked.
"""

from __future__ import annotations

import shlex
from datetime import timedelta

from ..answers import AlreadyRead, InputRefused
from ..documents.attempt import Owner, Slice
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..documents.read_windows import Overlap, ReadWindow, ReadWindows, unknown_before
from ..documents.texts import window_read_by
from ..errors import AlreadyReadError
from ..rules.restored_state import RestoreChoice

INTERVAL = "the run's data interval"
"""Name of the source in a refusal."""

NO_INTERVAL = (
    "the run has no data interval, or one without length, so its stages would read nothing. Trigger it with a logical "
    "date on a schedule that has intervals (CronDataIntervalTimetable), give the group the source DataInterval(), "
    "which reads up to the run's date, or say reads_window=False if the stages read no window of time"
)
"""Message for a run that would read nothing by accident."""


def read_by(choice: RestoreChoice) -> ReadWindows:
    """Give the windows that an attempt starts with: those of the restored state, and those to be replayed.

    A checkpoint of version 0.1 knows only its own epoch's window.
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
    """Check whether an epoch that is triggered may read its window.

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
    dag_id = head.owner.dag_id if head.owner is not None else head.job
    again = _again(head.job, dag_id, window)
    if overlap is Overlap.UNKNOWN:
        return InputRefused(
            INTERVAL,
            f"whether {window} has been read is not known: the job remembers what it has read from {read.exact_from} "
            f"on. Nothing was read. If no run has read it yet, {again}, which reads it without this check",
        )
    holder, back_to = _holder(head, choice, window), _back_to(head, window)
    if overlap is Overlap.ALL:
        return AlreadyRead(epoch, str(window), holder, back_to, again=again)
    shared = ", ".join(str(each) for each in read.shared(window)[:3])
    back = f"go back to before it by `cairn rewind {head.job} --to {back_to}`, or " if back_to else ""
    return InputRefused(
        INTERVAL,
        f"some of {window} has been read: checkpoint {holder} has read {shared}. Nothing was read. Trigger a run for "
        f"what is left: {_runs_for(head.job, dag_id, read.left(window))}. Or {back}{again}, which reads all of "
        f"{window}",
    )


def _runs_for(job: str, dag_id: str, windows: tuple[ReadWindow, ...]) -> str:
    """Give the commands that have Airflow make a run for each window."""
    return ", then ".join(f"`{_run_for(job, dag_id, each)}`" for each in windows[:3])


def _again(job: str, dag_id: str, window: ReadWindow) -> str:
    """Give advice how to read a window again."""
    return f"trigger a run that reads it again by `{_run_for(job, dag_id, window, '--read-again')}`"


def _run_for(job: str, dag_id: str, window: ReadWindow, *options: str) -> str:
    """Give the command that has Airflow make a run for a window; Airflow's own trigger takes no interval."""
    dag = () if dag_id == job else ("--dag", dag_id)
    ends = (window.start.isoformat(), window.end.isoformat())
    return shlex.join(("cairn", "checkpoint", job, *dag, "--window", *ends, *options))


def is_empty(slice_: Slice) -> bool:
    """Tell whether a slice is a window without length; False for a slice that names no window."""
    return slice_.start is not None and slice_.start == slice_.end


def gap_before(head: Head, choice: RestoreChoice, slice_: Slice, owner: Owner | None) -> tuple[str, ...]:
    """Give a log line about the unread gap between the newest window read and the epoch's.

    What another epoch reads that is pending, or waits for its place, is no gap, nor is what lies before that.
    """
    gap = _gap_before(choice, slice_)
    if gap is None:
        return ()
    windows = (*(each.window for each in head.pending), *(each.window for each in head.waiting))
    coming = [each.window.end for each in windows if each is not None]
    start = max((gap.start, *(each for each in coming if each <= gap.end)))
    if start == gap.end:
        return ()
    gap = ReadWindow(start, gap.end)
    said = f"no run has read {gap}: a backfill can read it later"
    return (said if owner is None else f"{said}: `{backfill_of(gap, owner.dag_id)}`",)


def refuse_gap(job: str, choice: RestoreChoice, slice_: Slice, owner: Owner | None) -> InputRefused | None:
    """Refuse an epoch with an unread gap before it, in a job with `on_gap` "refuse" (semantics T12).

    Returns:
        None where there is no gap, or the run's conf asks to read all the same.
    """
    gap, window = _gap_before(choice, slice_), window_read_by(slice_)
    if gap is None or window is None or slice_.again:
        return None
    backfill = "a backfill" if owner is None else f"`{backfill_of(gap, owner.dag_id)}`"
    return InputRefused(
        INTERVAL,
        f"no run has read {gap}, and the job's config says on_gap='refuse'. Nothing was read. Have Airflow make the "
        f"missing runs by {backfill}, and clear this run when they have succeeded. To go on without them, "
        f"{_again(job, owner.dag_id if owner is not None else job, window)}, which leaves the gap",
    )


def _gap_before(choice: RestoreChoice, slice_: Slice) -> ReadWindow | None:
    window, newest = window_read_by(slice_), read_by(choice).newest
    if window is None or newest is None or window.start <= newest:
        return None
    return ReadWindow(newest, window.start)


def backfill_of(gap: ReadWindow, dag_id: str) -> str:
    """Give the command that has Airflow make the runs of a gap."""
    # Airflow includes the last date, and the run after the gap has the gap's end as its date.
    last = gap.end - timedelta(seconds=1)
    dates = f"--from-date {gap.start.isoformat()} --to-date {last.isoformat()}"
    # One run at a time: a later day would build on a state without the day before.
    how = "--max-active-runs 1 --reprocess-behavior failed"
    return f"airflow backfill create --dag-id {shlex.quote(dag_id)} {dates} {how}"


def read_after(choice: RestoreChoice, epoch: str, slice_: Slice, *, job: str) -> ReadWindows:
    """Give the windows that the job will have read when an attempt completes.

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
