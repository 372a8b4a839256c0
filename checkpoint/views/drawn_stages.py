"""A job's stages as a DAG draws them: a mapped task is one, whatever the number of its instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta

from ...storage.records import dataclass
from ..config import CheckpointConfig
from ..documents.attempt import StageSpec
from ..documents.strict_json import Json


@dataclass(frozen=True, slots=True)
class DrawnStage:
    """One stage, or all stages of a mapped task."""

    uid: str
    """The stage's uid, or the name that a mapped task's stages share: each adds `-` and its index."""
    task_id: str | None
    """None where no task is known: the author gave the stages by hand."""
    instances: int
    """Number of a mapped task's stages; 0 where it is not mapped."""
    reads: tuple[str, ...]
    """Stages from which this one reads, by uid."""
    pipelined: tuple[str, ...]
    """Stages in `reads` with which this one runs again (semantics F1)."""


def specs_of(stages: Iterable[DrawnStage]) -> tuple[StageSpec, ...]:
    """Give the stages to draw as the protocol has them, a mapped task as one stage."""
    return tuple(StageSpec(each.uid, each.reads, pipelined=each.pipelined) for each in stages)


def box_of(stages: Iterable[DrawnStage], stage: str) -> tuple[DrawnStage, int | None] | None:
    """Find the drawn stage for a stage of a checkpoint; None where it is not part of what is drawn.

    Args:
        stages: what is drawn.
        stage: the stage's uid; of an instance of a mapped task with its index.

    Returns:
        The stage, or the mapped task, and its instance's index.
    """
    by_uid = {each.uid: each for each in stages}
    if stage in by_uid:
        return by_uid[stage], None
    name, _, index = stage.rpartition("-")
    found = by_uid.get(name)
    return (found, int(index)) if found and index.isdecimal() and int(index) < found.instances else None


def drawn(specs: Sequence[StageSpec], tasks: Mapping[str, str]) -> tuple[DrawnStage, ...]:
    """Draw stages together that are instances of one task.

    Args:
        specs: the stages.
        tasks: by a stage's uid the id of its task, as far as they are known.
    """
    name_of = {spec.uid: spec.member_of or spec.uid for spec in specs}
    members: dict[str, list[StageSpec]] = {}
    for spec in specs:
        members.setdefault(name_of[spec.uid], []).append(spec)
    task_of = {name_of[uid]: task_id for uid, task_id in tasks.items() if uid in name_of}

    def named(uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({name_of[uid] for uid in uids}))

    return tuple(
        DrawnStage(
            name,
            task_of.get(name),
            len(of_name) if of_name[0].member_of else 0,
            # What a task's instances read is the same: edges are drawn between tasks.
            named(of_name[0].upstream),
            named(of_name[0].pipelined),
        )
        for name, of_name in members.items()
    )


# A job's options as plain JSON values, as the DAG declares them (semantics S3).


def config_json(config: CheckpointConfig) -> dict[str, Json]:
    """Give each option by its name; one of time in seconds, with `_s` behind its name."""
    return dict(_fields(config))


def _fields(value: object) -> list[tuple[str, Json]]:
    assert is_dataclass(value)  # only those come here
    return [_field(each.name, getattr(value, each.name)) for each in fields(value)]


def _field(name: str, value: object) -> tuple[str, Json]:
    if isinstance(value, timedelta):
        return f"{name}_s", value.total_seconds()
    if is_dataclass(value):
        return name, {"type": type(value).__name__, **dict(_fields(value))}
    assert value is None or isinstance(value, str | int | float)  # CheckpointConfig checks what it is given
    return name, value
