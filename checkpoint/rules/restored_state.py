"""The checkpoint that an attempt restores, and its state for each subtask, as pure functions (semantics R2, R3, R4).

Keyed state is stored by key group. The number of key groups is the stage's maximum parallelism, which is fixed with the
stage's first state. At any parallelism up to that, each subtask has a contiguous range of key groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TypeVar

from ..answers import Damage
from ..documents.acknowledgement import ListMode
from ..documents.attempt import BacklogEpoch, ReplayedEpoch, RestorePointer, Slice, StageSpec
from ..documents.entries import RestoreRecord
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..documents.texts import one_line
from ..errors import InvalidStateError
from ..stage_graph import MAX_PARALLELISM

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
        _check_one(stage, recorded, where)
        if stage.parallelism is None:
            continue
        stored = recorded[0] if recorded else None
        _check_maximum(stage, stored, where)
        if before is not None and before.max_parallelism and before.parallelism != stage.parallelism:
            _check_raw(stage, before, where)
        found[stage.uid] = stage.max_parallelism or stored or derived_max_parallelism(stage.parallelism)
    return found


def _check_one(stage: StageSpec, recorded: tuple[int, ...], where: dict[str, str | int]) -> None:
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
            state=_listed(f"{each.uid}: {name}" for each in unclaimed for name in each.state),
            new=", ".join(sorted(claimed - {each.uid for each in restored})) or "none",
            stages=", ".join(sorted(claimed)),
        )


def check_claimed_by_hooks(stateful: Iterable[str], names: Collection[str], **where: str | int) -> None:
    """Check that each master hook that has state is still there, by its name.

    Args:
        stateful: names of the hooks that have state.
        names: of the job's hooks.
        **where: job and checkpoint or savepoint, for the error text.

    Raises:
        InvalidStateError: a hook is gone (semantics T7, R3).
    """
    unclaimed = sorted(set(stateful) - set(names))
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


def _listed(names: Iterable[str]) -> str:
    """List the first ten names for an error text."""
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
