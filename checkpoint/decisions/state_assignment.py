"""Which subtask gets which state when a stage is restored, and at which parallelism it may be (semantics R4).

Pure functions. Keyed state lies by key group: a fixed number of them, the stage's maximum parallelism, which is fixed
when the stage's first state is. A subtask has a contiguous range of them at any parallelism up to that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypeVar

from ..documents.acknowledgement import ListMode
from ..documents.attempt import StageSpec
from ..errors import InvalidStateError, NonRestoredStateError
from ..stage_graph import MAX_PARALLELISM

T = TypeVar("T")

MIN_DERIVED = 128
"""The lowest maximum that is derived."""

KEY_GROUPS = MIN_DERIVED
"""How many key groups keyed state has where its stage names no parallelism."""

FILES = "files"
"""The kind of output that is not partitioned: raw files."""


def assign(mode: ListMode, per_subtask: Sequence[Sequence[T]], parallelism: int) -> tuple[tuple[T, ...], ...]:
    """Give out the items of a list state (semantics R4).

    Args:
        mode: how.
        per_subtask: what each subtask held, by its 0-based index; for a broadcast state the one copy there is.
        parallelism: how many subtasks there are now, at least 1.

    Returns:
        What each subtask gets, by its index. For union and broadcast that is the same tuple each time.
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
    """Give the key groups of a subtask: contiguous, as evenly as can be, each group to one subtask (semantics R4).

    Args:
        subtask: its 0-based index.
        parallelism: how many subtasks there are.
        key_groups: how many groups there are; some subtasks have none where these are fewer.
    """
    first, end = (-(-index * key_groups // parallelism) for index in (subtask, subtask + 1))
    return range(first, end)


def derived_max_parallelism(parallelism: int) -> int:
    """Give the maximum of a stage that names none: half as much again, rounded up to a power of two, 128 to 32768."""
    with_room = parallelism + parallelism // 2
    power_of_two = 1 << max(0, with_room - 1).bit_length()
    return min(max(power_of_two, MIN_DERIVED), MAX_PARALLELISM)


@dataclass(frozen=True, slots=True)
class RestoredStage:
    """What a completed checkpoint says of one stage, as far as restoring asks for it."""

    uid: str
    parallelism: int
    max_parallelism: int | None = None
    """None: the stage named no parallelism when the checkpoint was made."""
    state: tuple[str, ...] = ()
    """What it holds: `Output.id` of each output, `value.<name>` of each small value, `epoch.<name>` of its backlog."""
    key_groups: tuple[int, ...] = ()
    """How many its keyed state has, each number once; none where it holds no keyed state."""

    @property
    def maxima(self) -> tuple[int, ...]:
        """The maxima that are recorded of it, each once; there may be one at most (semantics R4)."""
        named = () if self.max_parallelism is None else (self.max_parallelism,)
        return tuple(dict.fromkeys((*named, *self.key_groups)))


def match(restored: Iterable[RestoredStage], stages: Iterable[StageSpec], **where: str | int) -> dict[str, int]:
    """Check that each stage can be restored at its parallelism, and fix its maximum (semantics R4).

    Args:
        restored: the stages of the checkpoint; none where the job starts empty.
        stages: what the job runs.
        **where: job and checkpoint, for error texts.

    Returns:
        The maximum parallelism of each stage that names a parallelism, by uid.

    Raises:
        InvalidStateError: a maximum differs from that of the checkpoint, or is too low, or the checkpoint records two
            of one stage, or the parallelism of a stage with raw files has changed; the text names the stage and both
            numbers.
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
"""What lets state be left behind by every restore, for error texts."""


def check_claimed_by_stages(
    restored: Iterable[RestoredStage], stages: Sequence[StageSpec], allowing: str, **where: str | int
) -> None:
    """Check that each stage that has state is still there, by its uid (semantics R3).

    Args:
        restored: what the checkpoint or savepoint holds of each stage.
        stages: what the job runs.
        allowing: what lets state be left behind, for the error text.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: a stage is gone; the text names the uids on both sides.
    """
    claimed, restored = {stage.uid for stage in stages}, tuple(restored)
    unclaimed = sorted((each for each in restored if each.state and each.uid not in claimed), key=lambda each: each.uid)
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds state that no stage claims: was a stage renamed or removed? Give the stage its old "
            f"name by `uid=`, or leave that state behind by {allowing}",
            **where,
            unclaimed=", ".join(each.uid for each in unclaimed),
            state=_listed(f"{each.uid}: {name}" for each in unclaimed for name in each.state),
            new=", ".join(sorted(claimed - {each.uid for each in restored})) or "none",
            stages=", ".join(sorted(claimed)),
        )


def check_claimed_by_hooks(stateful: Iterable[str], names: Collection[str], **where: str | int) -> None:
    """Check that each state of a master hook belongs to one that is there.

    Args:
        stateful: names of the hooks whose state there is.
        names: of the hooks that are there.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: one belongs to none (semantics T7, R3).
    """
    unclaimed = sorted(set(stateful) - set(names))
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds state that no master hook claims: was a hook renamed or removed? Give it its old "
            "name, or leave that state behind by allow_non_restored_state=True",
            **where,
            unclaimed=", ".join(unclaimed),
            hooks=", ".join(sorted(names)) or "none",
        )


def check_claimed_by_sources(
    positions: Iterable[str], names: Collection[str], allowing: str, **where: str | int | None
) -> None:
    """Check that each source whose position there is is still there, by its name.

    A source that was renamed begins at the beginning, and reads again what the old one has read.

    Args:
        positions: names of the sources that have a position.
        names: of the sources that are there.
        allowing: what lets positions be left behind, for the error text.
        **where: the job, and which checkpoint or savepoint, for the error text.

    Raises:
        NonRestoredStateError: a source is gone; the text names the sources on both sides (semantics R3).
    """
    positions = set(positions)
    unclaimed = sorted(positions - set(names))
    if unclaimed:
        raise NonRestoredStateError(
            "the checkpoint holds the position of a source that the DAG no longer has: was a source renamed or "
            "removed? What it has read would be read again. Give the source its old name by `name=`, or leave its "
            f"position behind by {allowing}",
            **where,
            unclaimed=", ".join(unclaimed),
            new=", ".join(sorted(set(names) - positions)) or "none",
            sources=", ".join(sorted(names)) or "none",
        )


def _listed(names: Iterable[str]) -> str:
    """List the first of many names for an error text."""
    first = list(islice(names, 11))
    return ", ".join(first[:10]) + (", …" if len(first) > 10 else "")
