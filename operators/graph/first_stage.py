"""A job's first stages trigger its checkpoint: an epoch then begins with the start of their tasks, and no other.

Airflow passes over the task that triggers, as over an `EmptyOperator`. The first stage's task does its work as soon as
it finds that its epoch has no attempt to take part in (semantics T9); of several the one that comes first (T10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hooks.clear_body import TaskRef
from ...tasks.job_settings import scope_of
from .declaration import TriggerOperator
from .stages import is_mapped, is_stage

if TYPE_CHECKING:
    from .declaration import StageOperator


def first_stages_of(trigger: TriggerOperator) -> tuple[TaskRef, ...]:
    """Give the tasks of which one does the work of the task that triggers; none where that task does it itself.

    All tasks that follow are stages of the same `CheckpointedTaskGroup`, mapped or not, that follow no other task. A
    plain task might want what the trigger says, and one that waits for the checkpoint needs one to wait for.

    Args:
        trigger: a task of a DAG file that has been parsed to its end.

    Returns:
        In the order of their ids; of a mapped task its first instance.
    """
    scope = scope_of(trigger.task_group)
    if scope is None:
        return ()
    found = [trigger.dag.get_task(task_id) for task_id in sorted(trigger.downstream_task_ids)]
    if not all(
        is_stage(task) and scope_of(task.task_group) is scope and task.upstream_task_ids == {trigger.task_id}
        for task in found
    ):
        return ()
    return tuple(TaskRef(task.task_id, 0 if is_mapped(task) else -1) for task in found)


def trigger_before(stage: StageOperator) -> TriggerOperator | None:
    """Give the task whose work a stage's task may do; None where that task does it itself.

    Args:
        stage: the stage's task, or an instance of a mapped one.
    """
    for task_id in stage.upstream_task_ids:
        trigger = stage.dag.get_task(task_id)
        if isinstance(trigger, TriggerOperator) and first_stages_of(trigger):
            return trigger
    return None


def triggers_alone(trigger: TriggerOperator) -> bool:
    """Tell whether there is but one task that could trigger.

    Args:
        trigger: as of `first_stages_of`.
    """
    first = first_stages_of(trigger)
    return len(first) == 1 and first[0].map_index < 0


def task_that_triggers(trigger: TriggerOperator) -> TaskRef:
    """Give a task that triggers the checkpoint if it runs.

    Args:
        trigger: as of `first_stages_of`.
    """
    first = first_stages_of(trigger)
    return first[0] if first else TaskRef(trigger.task_id)
