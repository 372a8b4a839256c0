"""Finds the task of each stage of a job, and the tasks that run again with a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoint.source import folders_of
from ...hooks.clear_body import TaskRef
from ...tasks.clearing import Where
from ...tasks.job_settings import is_same_job, scope_of
from .declaration import TriggerOperator
from .stages import StageTask, instances_of, is_stage
from .topology import plain_tasks_after, skippable_upstreams, trigger_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...checkpoint.config import CheckpointConfig
    from ...storage.names import StorageUri
    from .declaration import StageOperator


def where_of(task: StageOperator, dag_id: str, run_id: str) -> Where:
    """Return the tasks of all stages of a stage's job, and the plain tasks that follow each stage.

    Args:
        task: the task of one stage. The stages of its job are those of its group; outside a group, all stages in the
            DAG with the same storage and job. Each instance of a mapped task is a stage.
        dag_id: the DAG's id.
        run_id: the id of the DAG run in which the tasks are to run again.
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
    """Return the task that triggers the checkpoints of a stage's job; None if the DAG does not have exactly one.

    Args:
        task: the stage's task. In a group its trigger is the group's; outside, the one with the same storage and job.
    """
    found = _trigger_operator(task)
    return trigger_task(found) if found is not None else None


def config_of(task: StageOperator) -> CheckpointConfig | None:
    """Return the config of a stage's job, as the DAG file has it now; None unless the DAG has exactly one trigger."""
    found = _trigger_operator(task) if task.has_dag() else None
    return found.config if found is not None else None


def source_folders(task: StageOperator) -> dict[str, StorageUri]:
    """Return the folders of the sources of a stage's job, as the DAG file has them now, by the sources' names.

    Args:
        task: the stage's task.
    """
    triggers = _trigger_operators(task) if task.has_dag() else []
    return folders_of(source for trigger in triggers for source in trigger.sources)


def _trigger_operator(task: StageOperator) -> TriggerOperator | None:
    found = _trigger_operators(task)
    return found[0] if len(found) == 1 else None


def _trigger_operators(task: StageOperator) -> list[TriggerOperator]:
    scope = scope_of(task.task_group)
    own = _stages_of_job(task)[0].operator
    return [
        each
        for each in task.dag.tasks
        if isinstance(each, TriggerOperator)
        and scope_of(each.task_group) is scope
        and (scope is not None or is_same_job(each, own))
    ]


def upstreams_to_look_at(task: StageOperator) -> dict[str, TaskRef]:
    """Return the tasks of those upstreams of a stage that may be skipped although the stage runs, by uid.

    Args:
        task: the stage's task; outside a group its upstreams are not known.
    """
    if scope_of(task.task_group) is None:
        return {}
    return _refs(skippable_upstreams(_stages_of_job(task), task.task_id))


def runs_after_success(task: StageOperator) -> bool:
    """Return whether Airflow starts a stage's task only once the tasks of all stages before it have succeeded."""
    return scope_of(task.task_group) is not None and not upstreams_to_look_at(task)


def _refs(stages: Iterable[StageTask]) -> dict[str, TaskRef]:
    return {stage.uid: TaskRef(stage.task_id, stage.map_index) for stage in stages}


def _stages_of_job(task: StageOperator) -> list[StageTask]:
    # The running task is a rendered copy. The DAG holds the parsed task, like all others.
    scope = scope_of(task.task_group)
    found = [
        stage
        for each in task.dag.tasks
        if is_stage(each) and scope_of(each.task_group) is scope
        for stage in instances_of(each)
    ]
    (own, *_) = (stage.operator for stage in found if stage.task_id == task.task_id)
    return [each for each in found if is_same_job(each.operator, own)]
