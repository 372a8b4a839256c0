"""The checkpoint that an attempt restores, its state for each subtask, and what it has read (semantics R2 to R4, T8).

Keyed state is stored by key group. The number of key groups is the stage's maximum parallelism, which is fixed with the
stage's first state. At any parallelism up to that, each subtask has a contiguous range of key groups.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from datetime import timedelta
from itertools import islice, pairwise
from typing import TypeVar

from ...storage.records import dataclass
from ..answers import AlreadyRead, Damage, InputRefused
from ..config import MAX_PARALLELISM
from ..documents.acknowledgement import ListMode
from ..documents.attempt import BacklogEpoch, Owner, ReplayedEpoch, RestorePointer, Slice, StageSpec, window_read_by
from ..documents.entries import RestoreRecord
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..documents.read_windows import NOTHING_READ, Overlap, ReadWindow, ReadWindows, unknown_before
from ..documents.staged_tables import PREFIX
from ..errors import AlreadyReadError, InvalidStateError
from ..masking import one_line

T = TypeVar("T")

MIN_DERIVED = 128
"""The lowest maximum parallelism that is derived."""

KEY_GROUPS = MIN_DERIVED
"""Number of key groups of keyed state whose stage names no parallelism."""

FILES = "files"
"""The kind of output that is not partitioned: raw files."""


def assign(mode: ListMode, per_subtask: Sequence[Sequence[T]], parallelism: int) -> tuple[tuple[T, ...], ...]:
    """Redistribute the items of a list state (semantics R4).

    Args:
        mode: split, union or broadcast.
        per_subtask: items of each subtask, by its 0-based index; for a broadcast state its single copy.
        parallelism: number of subtasks now, at least 1.

    Returns:
        Items of each subtask, by its index; for union and broadcast the same tuple each time.
    """
    if mode is ListMode.BROADCAST:
        return (tuple(per_subtask[0]) if per_subtask else (),) * parallelism
    if mode is ListMode.SPLIT and len(per_subtask) == parallelism:
        return tuple(tuple(items) for items in per_subtask)
    everything = tuple(item for items in per_subtask for item in items)
    if mode is ListMode.UNION:
        return (everything,) * parallelism
    each, longer = divmod(len(everything), parallelism)
    starts = [index * each + min(index, longer) for index in range(parallelism + 1)]
    return tuple(everything[start:end] for start, end in pairwise(starts))


def key_groups_of(subtask: int, parallelism: int, key_groups: int) -> range:
    """Give the key groups of a subtask: a contiguous range; ranges differ in size by one at most (semantics R4).

    Args:
        subtask: its 0-based index.
        parallelism: number of subtasks.
        key_groups: number of key groups; if there are fewer than subtasks, some subtasks have none.
    """
    first, end = (-(-index * key_groups // parallelism) for index in (subtask, subtask + 1))
    return range(first, end)


def derived_max_parallelism(parallelism: int) -> int:
    """Derive a stage's maximum parallelism: 1.5 times its parallelism, up to a power of two, 128 to 32768."""
    with_room = parallelism + parallelism // 2
    power_of_two = 1 << max(0, with_room - 1).bit_length()
    return min(max(power_of_two, MIN_DERIVED), MAX_PARALLELISM)


@dataclass(frozen=True, slots=True)
class RestoredStage:
    """State of one stage in a completed checkpoint, as far as a restore needs it."""

    uid: str
    parallelism: int
    max_parallelism: int | None = None
    """None: the stage named no parallelism when the checkpoint was made."""
    state: tuple[str, ...] = ()
    """Names of its state: `Output.id` of each output, `value.<name>` of each small value, `epoch.<name>` of its
    backlog."""
    key_groups: tuple[int, ...] = ()
    """Numbers of key groups of its keyed state, each once; empty without keyed state."""

    @property
    def maxima(self) -> tuple[int, ...]:
        """Recorded values of its maximum parallelism, each once; valid with one at most (semantics R4)."""
        named = () if self.max_parallelism is None else (self.max_parallelism,)
        return tuple(dict.fromkeys((*named, *self.key_groups)))


def match(restored: Iterable[RestoredStage], stages: Iterable[StageSpec], **where: str | int) -> dict[str, int]:
    """Check that each stage can be restored at its parallelism, and fix its maximum (semantics R4).

    Args:
        restored: the stages of the checkpoint; none where the job starts empty.
        stages: of the job.
        **where: job and checkpoint, for error texts.

    Returns:
        The maximum parallelism of each stage that names a parallelism, by uid.
    """
    stateful: dict[str, RestoredStage] = {}
    maxima: dict[str, tuple[int, ...]] = {}
    for each in restored:
        if each.state:
            stateful[each.uid] = each
            maxima[each.uid] = tuple(dict.fromkeys((*maxima.get(each.uid, ()), *each.maxima)))
    found: dict[str, int] = {}
    for stage in stages:
        before, recorded = stateful.get(stage.uid), maxima.get(stage.uid, ())
        _check_one_maximum(stage, recorded, where)
        if stage.parallelism is None:
            continue
        stored = recorded[0] if recorded else None
        _check_maximum(stage, stored, where)
        if before is not None and before.max_parallelism and before.parallelism != stage.parallelism:
            _check_raw(stage, before, where)
        found[stage.uid] = stage.max_parallelism or stored or derived_max_parallelism(stage.parallelism)
    return found


def _check_one_maximum(stage: StageSpec, recorded: tuple[int, ...], where: dict[str, str | int]) -> None:
    if len(recorded) > 1:
        raise InvalidStateError(
            "the checkpoint records more than one maximum parallelism of the stage, so the key groups of its state "
            "contradict each other: its metadata was altered, or put together from two checkpoints. Start from another "
            "one (`cairn rewind`, or a savepoint), or give the stage another uid, under which it starts empty",
            stage=stage.uid,
            recorded=" and ".join(map(str, recorded)),
            **where,
        )


def _check_maximum(stage: StageSpec, stored: int | None, where: dict[str, str | int]) -> None:
    if stored is None or stage.parallelism is None:
        return
    if stage.max_parallelism not in (None, stored):
        raise InvalidStateError(
            "max_parallelism differs from that of the checkpoint, and is fixed with a stage's first state. Set it "
            "back, or leave it out",
            stage=stage.uid,
            max_parallelism=stage.max_parallelism,
            restored_max_parallelism=stored,
            **where,
        )
    if stage.parallelism > stored:
        raise InvalidStateError(
            "parallelism is above the maximum that was fixed with the stage's first state. Lower it to that, or give "
            "the stage another uid, under which it starts empty",
            stage=stage.uid,
            parallelism=stage.parallelism,
            restored_max_parallelism=stored,
            **where,
        )


def _check_raw(stage: StageSpec, before: RestoredStage, where: dict[str, str | int]) -> None:
    raw = [each for each in before.state if each.startswith(f"{FILES}.")]
    if raw:
        raise InvalidStateError(
            "the stage holds raw files, which are not partitioned, and its parallelism has changed. Set it back, or "
            "first let an epoch at the old parallelism drop them by epoch.drop(name, kind='files')",
            stage=stage.uid,
            parallelism=stage.parallelism,
            restored_parallelism=before.parallelism,
            state=", ".join(raw[:10]),
            **where,
        )


ALLOWING = "CheckpointConfig(allow_non_restored_state=True)"
"""Setting that lets every restore leave state behind, for error texts."""


def check_claimed_by_stages(
    restored: Iterable[RestoredStage], stages: Sequence[StageSpec], allowing: str, **where: str | int
) -> None:
    """Check that each stage that has state is still there, by its uid (semantics R3).

    Args:
        restored: state of each stage in the checkpoint or savepoint.
        stages: of the job.
        allowing: the setting that lets state be left behind, for the error text.
        **where: job and checkpoint or savepoint, for the error text.

    Raises:
        InvalidStateError: a stage is gone; the text names the uids on both sides.
    """
    claimed, restored = {stage.uid for stage in stages}, tuple(restored)
    unclaimed = sorted((each for each in restored if each.state and each.uid not in claimed), key=lambda each: each.uid)
    if unclaimed:
        raise InvalidStateError(
            "the checkpoint holds state that no stage claims: was a stage renamed or removed? Give the stage its old "
            f"name by `uid=`, or leave that state behind by {allowing}",
            code="non_restored_state",
            **where,
            unclaimed=", ".join(each.uid for each in unclaimed),
            state=_first_ten(f"{each.uid}: {name}" for each in unclaimed for name in each.state),
            new=", ".join(sorted(claimed - {each.uid for each in restored})) or "none",
            stages=", ".join(sorted(claimed)),
        )


def check_claimed_by_hooks(stateful: Iterable[str], names: Collection[str], **where: str | int) -> None:
    """Check that each master hook that has state is still there, by its name; a table of the group keeps none.

    Args:
        stateful: names of the hooks that have state.
        names: of the job's hooks.
        **where: job and checkpoint or savepoint, for the error text.

    Raises:
        InvalidStateError: a hook is gone (semantics T7, R3).
    """
    unclaimed = sorted(name for name in set(stateful) - set(names) if not name.startswith(PREFIX))
    if unclaimed:
        raise InvalidStateError(
            "the checkpoint holds state that no master hook claims: was a hook renamed or removed? Give it its old "
            "name, or leave that state behind by allow_non_restored_state=True",
            code="non_restored_state",
            **where,
            unclaimed=", ".join(unclaimed),
            hooks=", ".join(sorted(names)) or "none",
        )


def check_claimed_by_sources(
    positions: Iterable[str], names: Collection[str], allowing: str, **where: str | int | None
) -> None:
    """Check that each source that has a position is still there, by its name.

    A renamed source starts from the beginning, and reads all input of the old one again.

    Args:
        positions: names of the sources that have a position.
        names: of the job's sources.
        allowing: the setting that lets positions be left behind, for the error text.
        **where: job and checkpoint or savepoint, for the error text.

    Raises:
        InvalidStateError: a source is gone; the text names the sources on both sides (semantics R3).
    """
    positions = set(positions)
    unclaimed = sorted(positions - set(names))
    if unclaimed:
        raise InvalidStateError(
            "the checkpoint holds the position of a source that the DAG no longer has: was a source renamed or "
            "removed? What it has read would be read again. Give the source its old name by `name=`, or leave its "
            f"position behind by {allowing}",
            code="non_restored_state",
            **where,
            unclaimed=", ".join(unclaimed),
            new=", ".join(sorted(set(names) - positions)) or "none",
            sources=", ".join(sorted(names)) or "none",
        )


def _first_ten(names: Iterable[str]) -> str:
    first = list(islice(names, 11))
    return ", ".join(first[:10]) + (", …" if len(first) > 10 else "")


@dataclass(frozen=True, slots=True)
class RestoreChoice:
    """The checkpoint that an attempt restores; without a pointer the attempt starts empty (semantics R2)."""

    pointer: RestorePointer | None
    replay: tuple[ReplayedEpoch, ...] = ()
    """Epochs whose checkpoints were bypassed, oldest first: their input has to be read again."""
    damages: tuple[Damage, ...] = ()
    stages: tuple[RestoredStage, ...] = ()
    """State of each stage in the checkpoint; it must be claimed, and fit (semantics R3, R4)."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks with state in the checkpoint; it must be claimed (semantics T7)."""
    slice: Slice | None = None
    """The input of the checkpoint's epoch, with its sources' positions (semantics T8)."""
    backlogs: dict[str, tuple[BacklogEpoch, ...]] = field(default_factory=dict)
    """Backlog in the checkpoint by stage, oldest epoch first (semantics B3, F6)."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that the checkpoint's state has read (semantics T8)."""

    def record(self, why: str, begin_ms: int, end_ms: int, *, into: int | None = None) -> RestoreRecord | None:
        """Make the head's record of the restore; None for an empty start (semantics R5).

        Args:
            why: cause of the restore, for people.
            begin_ms: start of the search, milliseconds since 1970 UTC.
            end_ms: end of the search.
            into: the checkpoint of the attempt that restores.
        """
        if self.pointer is None:
            return None
        return RestoreRecord(
            checkpoint=self.pointer.checkpoint,
            at_ms=begin_ms,
            took_ms=max(0, end_ms - begin_ms),
            why=why,
            into=into,
            damages=tuple(one_line(str(damage)) for damage in self.damages[:10]),
        )


# Whether the restored state has read the epoch's window already (semantics T8).
#
# A job without a source reads the data interval of its run. A manual run, a backfill or another schedule may give a
# second run the same interval, and reading it again would count it twice. The result may change with the next
# checkpoint, so each attempt is checked.


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


def judge_window(head: Head, choice: RestoreChoice, epoch: str, slice_: Slice) -> AlreadyRead | InputRefused | None:
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
    again = _how_to_read_again(head.job, dag_id, window)
    if overlap is Overlap.UNKNOWN:
        return InputRefused(
            INTERVAL,
            f"whether {window} has been read is not known: the job remembers what it has read from {read.exact_from} "
            f"on. Nothing was read. If no run has read it yet, {again}, which reads it without this check",
        )
    holder, back_to = _checkpoint_that_read(head, choice, window), _newest_before_reading(head, window)
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


def _how_to_read_again(job: str, dag_id: str, window: ReadWindow) -> str:
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

    The window of another epoch that is pending, or waits for its place, is not a gap, nor is the time before it.
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
        f"{_how_to_read_again(job, owner.dag_id if owner is not None else job, window)}, which leaves the gap",
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


def _checkpoint_that_read(head: Head, choice: RestoreChoice, window: ReadWindow) -> int:
    found = (each.id for each in head.completed if each.read.overlap(window) in (Overlap.ALL, Overlap.SOME))
    return next(found, choice.pointer.checkpoint if choice.pointer else 0)


def _newest_before_reading(head: Head, window: ReadWindow) -> int | None:
    free = [each.id for each in head.completed[:-1] if each.read and each.read.overlap(window) is Overlap.NONE]
    return max(free, default=None)
