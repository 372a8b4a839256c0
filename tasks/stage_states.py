"""Stages whose tasks have ended without an acknowledgement, so that no task is left to wait for.

A user has marked them, their last try was killed and no callback reported it, an attempt that ended took their work
along, or their acknowledgement was deleted: the store tells which.

Airflow has no hook for that, and the driver of a marked task is simply ended. The task that waits for the checkpoint
begins when the stages' tasks have ended, so it can ask what became of those that have not acknowledged.

No acknowledgement is missed: an operator ends its task as a success only after its acknowledgement counted, and
the checkpoint is looked at once more after the tasks. Nor is a failover missed: a stage
whose task runs, or will be tried again, opens the next attempt. So not all of the missing stages have ended, and the
attempt is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..checkpoint.answers import Progress, Waiting
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import CheckpointFailedError
from ..hooks.clear_body import TaskRef
from .clearing import Where

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

ENDED = frozenset({"success", "failed", "upstream_failed", "removed"})
"""Airflow's states of a task that it does not run again by itself. A skipped one was acknowledged for."""


class NobodyAcknowledgesError(CheckpointFailedError):
    """No task is left that acknowledges for a stage that the checkpoint waits for; only a user can go on from there."""

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
    """Check that a stage can still acknowledge.

    Args:
        job: the job's name.
        epoch: the epoch's name.
        before: how far the checkpoint was before Airflow was asked.
        now: how far it is after that.
        stages: the tasks that were asked about, by uid of the stage; all that were missing before.
        states: what Airflow says of them.
        why: says of a stage why it has not acknowledged, as far as the store tells.

    Raises:
        NobodyAcknowledgesError: the same attempt waits, and the tasks of all stages that it waits for have ended.
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


def check_expected(job: str, epoch: str, now: Progress, where: Where) -> None:
    """Check that the DAG file still has every stage that the checkpoint waits for.

    Airflow removes the task of one that it has no more, so nothing would end the wait but the checkpoint's timeout.

    Args:
        job: the job's name.
        epoch: the epoch's name.
        now: how far its checkpoint is.
        where: the run's tasks, as the DAG file has them now.

    Raises:
        NobodyAcknowledgesError: it lacks some; the text names them and the ways on.
    """
    if not isinstance(now, Waiting):
        return
    removed = where.removed(now.missing)
    if removed:
        raise NobodyAcknowledgesError(
            f"checkpoint {now.checkpoint} cannot complete: {where.ways_on_without(removed)}",
            job=job,
            epoch=run_id_of(epoch),
            attempt=now.attempt,
        )


def _name(task: TaskRef) -> str:
    return task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]"


log = logging.getLogger("airflow_cairn")

SKIPPED = "skipped"
"""Airflow's state of such a task."""


def states_of(ti: Any, tasks: Iterable[TaskRef]) -> dict[TaskRef, str]:
    """Ask Airflow for the states of some tasks of a task's own DAG run; one that it does not know is missing."""
    wanted = set(tasks)
    plain = sorted(task.task_id for task in wanted if task.map_index < 0)
    found = {TaskRef(task_id): state for task_id, state in _states(ti, plain).items()} if plain else {}
    for task_id in sorted({task.task_id for task in wanted if task.map_index >= 0}):
        # One question each: Airflow names instance 1 of `b` as it names the task `b_1`.
        states = _states(ti, [task_id])
        for task in wanted:
            name = f"{task_id}_{task.map_index}"
            if task.task_id == task_id and name in states:
                found[task] = states[name]
    return found


def was_skipped(ti: Any, task: TaskRef) -> bool:
    """Ask Airflow whether it has skipped a task of a task's own DAG run."""
    return states_of(ti, [task]).get(task) == SKIPPED


def acknowledge_for(
    coordinator: Coordinator,
    epoch: str,
    ti: Any,
    stages: Mapping[str, TaskRef],
    states: Mapping[TaskRef, str] | None = None,
) -> tuple[str, ...]:
    """Acknowledge in the place of those stages that Airflow has skipped, each once, whichever task does it.

    Args:
        coordinator: of the job.
        epoch: the epoch's name.
        ti: the task instance that runs; of the same DAG run.
        stages: their tasks, by uid.
        states: what Airflow says of these tasks, where it has been asked.

    Returns:
        The stages that this call acknowledged.

    Raises:
        CheckpointFailedError: a stage that was skipped has to read older epochs' input.
        UnavailableError: the store did not answer.
    """
    if not stages:
        return ()
    from ..spark.skipped_stage import acknowledge_skipped  # a DAG file does not need it

    if states is None:
        states = states_of(ti, stages.values())
    done = []
    for uid, task in stages.items():
        if states.get(task) == SKIPPED and acknowledge_skipped(coordinator, epoch, uid, str(ti.id)):
            log.info("epoch %s · stage %s was skipped: it goes on with its state unchanged", run_id_of(epoch), uid)
            done.append(uid)
    return tuple(done)


def _states(ti: Any, task_ids: list[str]) -> dict[str, str]:
    states: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, task_ids=task_ids, run_ids=[ti.run_id])
    # The state of a task that is to run, and is not scheduled yet, is None.
    return {name: str(state) for name, state in states.get(ti.run_id, {}).items() if state is not None}
