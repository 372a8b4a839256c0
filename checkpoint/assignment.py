"""Which subtask gets which state when a stage is restored, and at which parallelism it may be (semantics R4).

Pure functions. Keyed state lies by key group: a fixed number of them, the stage's maximum parallelism, which is fixed
when the stage's first state is. A subtask has a contiguous range of them at any parallelism up to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from .errors import InvalidConfigError, InvalidStateError
from .model import ListMode, StageSpec
from .options import check_whole

T = TypeVar("T")

MAX_PARALLELISM = 32_768
"""The highest maximum that a stage may have, and the highest that is derived."""

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


def check_parallelism(parallelism: object, max_parallelism: object, **where: str) -> None:
    """Check both numbers of a stage as its author gave them.

    Args:
        parallelism: subtasks that must acknowledge; None for as many as the stage says.
        max_parallelism: the highest that the stage will ever be restored at; None to have it derived.
        **where: the stage or task, for the error text.

    Raises:
        InvalidConfigError: one is no whole number from 1 to 32768, or they do not go together.
    """
    for option, value in (("parallelism", parallelism), ("max_parallelism", max_parallelism)):
        if value is None:
            continue
        check_whole(option, value, **where)
        if isinstance(value, int) and value > MAX_PARALLELISM:
            raise InvalidConfigError(
                f"{option} must be at most {MAX_PARALLELISM}; a stage that names none may have more subtasks",
                **where,
                **{option: value},
            )
    if max_parallelism is not None and parallelism is None:
        raise InvalidConfigError(
            "max_parallelism bounds parallelism, and the stage names none: set parallelism too, or leave both out",
            **where,
            max_parallelism=max_parallelism,
        )
    if isinstance(max_parallelism, int) and isinstance(parallelism, int) and parallelism > max_parallelism:
        raise InvalidConfigError(
            "parallelism must not be above max_parallelism",
            **where,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )


@dataclass(frozen=True, slots=True)
class RestoredStage:
    """What a completed checkpoint says of one stage, as far as restoring asks for it."""

    uid: str
    parallelism: int
    max_parallelism: int | None = None
    """None: the stage named no parallelism when the checkpoint was made."""
    state: tuple[str, ...] = ()
    """What it holds: `Output.id` of each output, `value.<name>` of each small value, `epoch.<name>` that it owes."""
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
