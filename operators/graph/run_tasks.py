"""Which task of the DAG is which stage of the job, and which tasks run again with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hooks.clear_body import TaskRef
from ...tasks.clearing import Where
from ...tasks.job_settings import is_same_job, scope_of
from .declaration import TriggerOperator
from .first_stage import task_that_triggers
from .stages import StageTask, instances_of, is_stage
from .topology import plain_tasks_after, upstreams_that_may_be_skipped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .declaration import StageOperator


def where_of(task: StageOperator, dag_id: str, run_id: str) -> Where:
    """Find the tasks of all stages of a stage's job, and the plain tasks that follow each.

    Args:
        task: one stage's task. The stages of its job are those of its group; outside of one, all that the DAG has of
            the same storage and job. Each instance of a mapped task is one.
        dag_id: the DAG's id.
        run_id: the run in which they are to run again.

    Raises:
        InvalidConfigError: the DAG file has changed, and a mapped task of it is no stage any more.
    """
    stages = _stages_of_job(task)
    plain = plain_tasks_after(stages)
    return Where(
        dag_id,
        run_id,
        _refs(stages),
        {uid: tuple(TaskRef(task_id) for task_id in task_ids) for uid, task_ids in plain.items()},
        trigger_of(task),
    )


def trigger_of(task: StageOperator) -> TaskRef | None:
    """Give the task that triggers the checkpoints of a stage's job, if the DAG has exactly one.

    Args:
        task: the stage's task. Inside of a group it is the group's; outside, the one of the same storage and job.
    """
    scope = scope_of(task.task_group)
    own = _stages_of_job(task)[0].operator
    found = [
        each
        for each in task.dag.tasks
        if isinstance(each, TriggerOperator)
        and scope_of(each.task_group) is scope
        and (scope is not None or is_same_job(each, own))
    ]
    return task_that_triggers(found[0]) if len(found) == 1 else None


def upstreams_to_look_at(task: StageOperator) -> dict[str, TaskRef]:
    """Give the tasks of those upstreams of a stage that may have been skipped although the stage runs, by uid.

    Args:
        task: the stage's task; outside of a group nothing is known of its upstreams.
    """
    if scope_of(task.task_group) is None:
        return {}
    return _refs(upstreams_that_may_be_skipped(_stages_of_job(task), task.task_id))


def _refs(stages: Iterable[StageTask]) -> dict[str, TaskRef]:
    return {stage.uid: TaskRef(stage.task_id, stage.map_index) for stage in stages}


def _stages_of_job(task: StageOperator) -> list[StageTask]:
    # The task that runs is a rendered copy; in the DAG it stands as it was parsed, and so do the others.
    scope = scope_of(task.task_group)
    found = [
        stage
        for each in task.dag.tasks
        if is_stage(each) and scope_of(each.task_group) is scope
        for stage in instances_of(each)
    ]
    (own, *_) = (stage.operator for stage in found if stage.task_id == task.task_id)
    return [each for each in found if is_same_job(each.operator, own)]
