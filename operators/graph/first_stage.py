"""A job's first stage triggers its checkpoint: an epoch then begins with the start of that stage's task, and no other.

Airflow passes over the task that triggers, as over an `EmptyOperator`. The stage's task does its work as soon as it
finds that its epoch has no attempt to take part in (semantics T9).
"""

from __future__ import annotations

from ...hooks.clear_body import TaskRef
from ...tasks.job_settings import scope_of
from .declaration import StageOperator, TriggerOperator


def first_stage_of(trigger: TriggerOperator) -> StageOperator | None:
    """Give the stage whose task does the work of the task that triggers; None where that task does it itself.

    It is the only task that follows, it follows no other, and it is in the same `CheckpointedTaskGroup`. Two would
    trigger at the same moment, and call sources and master hooks twice; a plain task might want what the trigger says.

    Args:
        trigger: a task of a DAG file that has been parsed to its end.
    """
    scope = scope_of(trigger.task_group)
    if scope is None or len(trigger.downstream_task_ids) != 1:
        return None
    (task_id,) = trigger.downstream_task_ids
    first = trigger.dag.get_task(task_id)
    if not isinstance(first, StageOperator) or first.upstream_task_ids != {trigger.task_id}:
        return None
    return first if scope_of(first.task_group) is scope and first.get_closest_mapped_task_group() is None else None


def trigger_before(stage: StageOperator) -> TriggerOperator | None:
    """Give the task whose work a stage's task does; None where that task does it itself.

    Args:
        stage: the stage's task.
    """
    for task_id in stage.upstream_task_ids:
        trigger = stage.dag.get_task(task_id)
        if isinstance(trigger, TriggerOperator) and first_stage_of(trigger) is not None:
            return trigger
    return None


def task_that_triggers(trigger: TriggerOperator) -> TaskRef:
    """Give the task that runs where a checkpoint is triggered.

    Args:
        trigger: as of `first_stage_of`.
    """
    return TaskRef((first_stage_of(trigger) or trigger).task_id)
