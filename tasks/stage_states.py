"""Stages whose tasks have ended without an acknowledgement, so that the checkpoint waits in vain.

A user has marked them, their last try was killed and no callback reported it, an ended attempt discarded their work, or
their acknowledgement was deleted: the store tells which.

Airflow has no hook for that, and the driver of a marked task is simply ended. `wait_for_checkpoint`
begins when the stages' tasks have ended, so it can ask for the states of those that have not acknowledged.

No acknowledgement is missed: an operator ends its task as a success only after its acknowledgement counted, and the
checkpoint is looked at once more after the tasks. Nor is a failover missed: a stage whose task runs, or will be
retried, opens the next attempt. Then not all of the missing stages have ended, and the attempt is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskInstanceState
from airflow.sdk.exceptions import AirflowNotFoundException

from ..checkpoint.answers import Progress, Restarted, Waiting
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import AirflowApiRefusedError, CheckpointFailedError, InvalidConfigError
from ..hooks.airflow_api import AirflowApiHook
from ..hooks.task_refs import ENDED, TaskRef
from .clearing import Where, compare_and_clear

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

NEVER_ACKNOWLEDGES = ENDED - {TaskInstanceState.SKIPPED}
"""No acknowledgement comes from such a task. For a skipped one, another task acknowledges."""


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

    `before` and `now` are the progress before and after Airflow was asked. `stages` are the tasks that were asked
    about, by the stage's uid: all that were missing before. `why` returns why a stage has not acknowledged, as far as
    the store tells.

    Raises:
        CheckpointFailedError: the same attempt waits, and the tasks of all stages that it waits for have ended.
    """
    if not isinstance(before, Waiting) or not isinstance(now, Waiting) or before.checkpoint != now.checkpoint:
        return
    missing = {uid: stages[uid] for uid in now.missing if uid in stages}
    if (
        not missing
        or len(missing) < len(now.missing)
        or any(states.get(task) not in NEVER_ACKNOWLEDGES for task in missing.values())
    ):
        return
    named = "; ".join(f"{_name(task)} ({states[task]}): {why(uid)}" for uid, task in missing.items())
    raise CheckpointFailedError(
        f"checkpoint {now.checkpoint} cannot complete: tasks have ended although their stages have not acknowledged: "
        f"{named}. Nothing of this epoch counts before they have run. Clear them with Downstream, and this task with "
        "them",
        code="stages_ended",
        job=job,
        epoch=run_id_of(epoch),
        attempt=now.attempt,
    )


def check_expected(job: str, epoch: str, now: Progress, where: Where) -> None:
    """Check that the DAG file still has every stage that the checkpoint waits for.

    Airflow removes the task of a stage that is gone from the DAG file: only the checkpoint's timeout would end the
    wait.

    Raises:
        CheckpointFailedError: the file lacks some stages; the message names them and the ways on.
    """
    if not isinstance(now, Waiting):
        return
    removed = where.removed(now.missing)
    if removed:
        raise CheckpointFailedError(
            f"checkpoint {now.checkpoint} cannot complete: {where.ways_on_without(removed)}",
            code="stages_ended",
            job=job,
            epoch=run_id_of(epoch),
            attempt=now.attempt,
        )


def _name(task: TaskRef) -> str:
    return task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]"


def states_of(ti: Any, tasks: Iterable[TaskRef]) -> dict[TaskRef, str]:
    """Ask Airflow for the states of some tasks of this DAG run; a task that Airflow does not know has no entry."""
    wanted = set(tasks)
    plain = sorted(task.task_id for task in wanted if task.map_index < 0)
    found = {TaskRef(task_id): state for task_id, state in _states(ti, plain).items()} if plain else {}
    for task_id in sorted({task.task_id for task in wanted if task.map_index >= 0}):
        # One question for each task: in the answer, Airflow names instance 1 of `b` like the task `b_1`.
        states = _states(ti, [task_id])
        for task in wanted:
            if task.task_id == task_id and task.name_in_states in states:
                found[task] = states[task.name_in_states]
    return found


def was_skipped(ti: Any, task: TaskRef) -> bool:
    """Return whether Airflow has skipped a task of this DAG run."""
    return states_of(ti, [task]).get(task) == TaskInstanceState.SKIPPED


def acknowledge_for(
    coordinator: Coordinator,
    epoch: str,
    ti: Any,
    stages: Mapping[str, TaskRef],
    states: Mapping[TaskRef, str] | None = None,
) -> tuple[str, ...]:
    """Acknowledge, once, for the stages whose tasks in `ti`'s run Airflow has skipped; returns those of this call."""
    if not stages:
        return ()
    from ..spark.acknowledging import acknowledge_skipped  # a DAG file does not need it

    if states is None:
        states = states_of(ti, stages.values())
    done = []
    for uid, task in stages.items():
        if states.get(task) == TaskInstanceState.SKIPPED and acknowledge_skipped(coordinator, epoch, uid, str(ti.id)):
            log.info("Epoch %s · stage %s was skipped: it goes on with its state unchanged", run_id_of(epoch), uid)
            done.append(uid)
    return tuple(done)


def _states(ti: Any, task_ids: list[str]) -> dict[str, str]:
    states: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, task_ids=task_ids, run_ids=[ti.run_id])
    # Airflow gives None for a task that is to run but is not scheduled yet.
    return {name: str(state) for name, state in states.get(ti.run_id, {}).items() if state is not None}


# The last safety net: stages that have not acknowledged although Airflow shows their tasks as successes (F5).
#
# A failover has replaced their output, and the processes that should have cleared them died; or a user marked the task
# while it ran; or an acknowledgement was deleted. `wait_for_checkpoint` finds them, because it begins
# when the stages' tasks have ended. A stage's task succeeds by itself only after its acknowledgement counted, so such a
# task has produced nothing that counts: it runs again, and its begin settles the rest of the try before.


def start_again(
    coordinator: Coordinator,
    epoch: str,
    now: Progress,
    states: Mapping[TaskRef, str],
    where_of: Callable[[str], Where] | None,
    conn_id: str | None,
) -> tuple[str, ...]:
    """Clear the tasks of stages that have succeeded without an acknowledgement.

    Without `where_of` (the job has no group), or without `conn_id`, a user clears.

    Returns:
        The stages whose tasks run again now; none if a user has to clear them.
    """
    if not isinstance(now, Waiting) or where_of is None or conn_id is None:
        return ()
    where = where_of(run_id_of(epoch))
    named = [
        uid for uid in now.missing if uid in where.tasks and states.get(where.tasks[uid]) == TaskInstanceState.SUCCESS
    ]
    if not named:
        return ()
    note = f"Cairn: checkpoint {now.checkpoint}, attempt {now.attempt} has nothing of this stage, so it runs again"

    def missing() -> tuple[str, ...]:
        still = coordinator.progress(epoch)
        same = isinstance(still, Waiting) and still.checkpoint == now.checkpoint
        return still.missing if isinstance(still, Waiting) and same else ()

    try:
        with AirflowApiHook(conn_id) as api:
            cleared = compare_and_clear(api, where, [Restarted(uid, "") for uid in named], note, missing)
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        log.warning(
            "Stages must run again, %s, and cannot be cleared (%s): %s", ", ".join(named), error, where.remedy(named)
        )
        return ()
    log.info("%s", cleared)
    return cleared.stages
