"""Stages whose tasks Airflow has skipped: a branch not taken, a condition not met.

Such a stage will not acknowledge by itself. A task that needs it to, a stage that reads from it or the task that waits
for the checkpoint, acknowledges in its place: its state and tables go on as they were, and it has written nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.layout import run_id_of
from ..spark.skipping import acknowledge_skipped
from .clear_body import TaskRef

log = logging.getLogger(__name__)

SKIPPED = "skipped"
"""Airflow's state of such a task."""


def states_of(ti: Any, tasks: Iterable[TaskRef]) -> dict[TaskRef, str]:
    """Ask Airflow for the states of some tasks of a task's own DAG run; one that it does not know is missing.

    Args:
        ti: the task instance that runs.
        tasks: of its DAG.
    """
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
