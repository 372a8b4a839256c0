"""Stages whose tasks have ended without an acknowledgement, so that no task is left to wait for.

A person has marked them, their last try was killed and no callback reported it, an attempt that ended took their work
along, or their acknowledgement was deleted: the store tells which.

Airflow has no hook for that, and the driver of a marked task is simply ended. The task that waits for the checkpoint
begins when the stages' tasks have ended, so it can ask what became of those that have not acknowledged.

No acknowledgement is missed: an operator ends its task as a success only after its acknowledgement counted, and
the checkpoint is looked at once more after the tasks. Nor is a failover: what opens another attempt is a stage whose
own task runs or will be tried again, so not all of the missing ones have ended; and the attempt is another one then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.layout import run_id_of
from ..checkpoint.requests import Progress, Waiting
from .clear_body import TaskRef

ENDED = frozenset({"success", "failed", "upstream_failed", "removed"})
"""Airflow's states of a task that it does not run again by itself. A skipped one was acknowledged for."""


class NobodyAcknowledgesError(CheckpointFailedError):
    """Every stage that the checkpoint waits for has ended without acknowledging; only a person can go on from there."""

    retry_cures = False


def check_awaited(
    job: str,
    epoch: str,
    before: Progress,
    now: Progress,
    stages: Mapping[str, TaskRef],
    states: Mapping[TaskRef, str],
    why: Callable[[str], str],
) -> None:
    """See that somebody can still acknowledge.

    Args:
        job: the job's name.
        epoch: the epoch's name.
        before: how far the checkpoint was before Airflow was asked.
        now: how far it is after that.
        stages: the tasks that were asked about, by uid of the stage; all that were missing before.
        states: what Airflow says of them.
        why: says of a stage why it has not acknowledged, as far as the store tells.

    Raises:
        NobodyAcknowledgesError: the same attempt waits, and the tasks of all whom it waits for have ended.
    """
    if not isinstance(before, Waiting) or not isinstance(now, Waiting) or before.checkpoint != now.checkpoint:
        return
    missing = {uid: stages[uid] for uid in now.missing if uid in stages}
    if (
        not missing
        or len(missing) < len(now.missing)
        or any(states.get(task) not in ENDED for task in missing.values())
    ):
        return
    named = "; ".join(f"{_name(task)} ({states[task]}): {why(uid)}" for uid, task in missing.items())
    raise NobodyAcknowledgesError(
        f"checkpoint {now.checkpoint} cannot complete: tasks have ended although their stages have not acknowledged: "
        f"{named}. Nothing of this epoch counts before they have run. Clear them with Downstream, and this task with "
        "them",
        job=job,
        epoch=run_id_of(epoch),
        attempt=now.attempt,
    )


def _name(task: TaskRef) -> str:
    return task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]"
