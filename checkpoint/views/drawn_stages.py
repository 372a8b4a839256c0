"""A job's stages as a DAG draws them: a mapped task is one, whatever the number of its instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..documents.attempt import StageSpec


@dataclass(frozen=True, slots=True)
class DrawnStage:
    """One stage, or all stages of a mapped task."""

    uid: str
    """Of a mapped task: what its stages are called together; each adds `-` and its index."""
    task_id: str | None
    """None where no task is known: the author gave the stages by hand."""
    instances: int
    """Of a mapped task; 0 where it is not mapped."""
    reads: tuple[str, ...]
    """Of whom it reads, by uid."""
    pipelined: tuple[str, ...]
    """Those of `reads` with which it runs again (semantics F1)."""


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
