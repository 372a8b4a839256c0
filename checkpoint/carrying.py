"""Which executions a new attempt takes over from the one before (semantics F1, F2).

An execution is the unit: it carries over whole, running or acknowledged, or it is run again. Whatever reads from one
that is run again is run again too, unless it reads what is there (B2): its next run then reads the new output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from . import acks
from .job_files import JobFiles
from .model import Execution, HooksRef, PendingDocument, StageSpec
from .requests import consumers


@dataclass(frozen=True, slots=True)
class Carried:
    """What is taken over."""

    executions: Mapping[str, Execution]
    acknowledged: frozenset[str]
    """Those of them that have acknowledged already."""
    hooks: HooksRef | None = None
    """The answers of the master hooks, given or still to be given; what is taken over was computed with them."""
    declined: frozenset[str] = frozenset()
    """Stages that had declined in the attempt before; none of them is taken over."""


NOTHING = Carried({}, frozenset())


def carry(
    files: JobFiles,
    before: PendingDocument,
    stages: tuple[StageSpec, ...],
    *,
    rejected: Collection[str] = (),
    restart: str | None = None,
    running: bool = True,
) -> Carried:
    """Choose what a new attempt takes over: two listings for each checkpoint in which executions are at home.

    Args:
        files: the job's files.
        before: what the attempt before expected.
        stages: what the new one expects; a stage that the DAG has changed is run again.
        rejected: tokens of executions that were told that they do not count, and of answers of hooks that do not.
        restart: a stage to run again unless it has acknowledged.
        running: whether executions that have not acknowledged are taken over too.
    """
    acknowledged = acks.marked(files, before.executions, "acks")
    declined = acks.marked(files, before.executions, "declines") - acknowledged
    gone = declined
    if restart not in acknowledged:
        gone |= {restart} if restart else set()
    if not running:
        gone |= before.executions.keys() - acknowledged
    sound = {
        uid: execution
        for uid, execution in before.executions.items()
        if uid not in gone and execution.token not in rejected and before.stage(uid) in stages
    }
    for stage in stages if not before.limits.at_least_once else ():
        if stage.uid not in sound:
            sound = without(sound, stage.uid, stages)
    hooks = before.hooks if before.hooks is not None and before.hooks.token not in rejected else None
    return Carried(sound, acknowledged & sound.keys(), hooks, declined)


def without(executions: Mapping[str, Execution], uid: str, stages: tuple[StageSpec, ...]) -> dict[str, Execution]:
    """Leave out a stage and everything that reads, directly or not, what it writes (semantics F1)."""
    restart = {uid, *consumers(stages, uid)}
    return {name: execution for name, execution in executions.items() if name not in restart}
