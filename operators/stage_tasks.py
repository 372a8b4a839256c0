"""Which task of the DAG is which stage of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hooks.clear_body import TaskRef

if TYPE_CHECKING:
    from .spark_epoch import SparkEpochOperator


def stage_tasks(task: SparkEpochOperator) -> dict[str, TaskRef]:
    """Find the tasks of all stages of a stage's job.

    Args:
        task: one stage's task; in its DAG all `SparkEpochOperator`s of the same storage and job are stages of the job,
            in a group or not.

    Returns:
        The tasks by their stages' uids.
    """
    from .spark_epoch import SparkEpochOperator  # it asks for its siblings itself

    dag = task.dag
    # The task that runs is a rendered copy; in the DAG it stands as it was parsed, and so do the others.
    own = dag.get_task(task.task_id)
    assert isinstance(own, SparkEpochOperator)
    return {
        other.uid: TaskRef(other.task_id)
        for other in dag.tasks
        if isinstance(other, SparkEpochOperator) and (other.storage, other.job) == (own.storage, own.job)
    }
