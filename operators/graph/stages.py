"""Tasks as stages: a task is one stage, each instance of a mapped one is a stage of its own (semantics F1).

How many there are must be known where the DAG is parsed: who has to acknowledge is fixed when a checkpoint begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeGuard

from airflow.sdk import XComArg
from airflow.sdk.bases.decorator import DecoratedMappedOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator

from ...checkpoint.errors import InvalidConfigError
from ...storage.names import check_name
from ...tasks.job_settings import check_room, naming
from .declaration import StageOperator, stage_uid


@dataclass(frozen=True, slots=True)
class StageTask:
    """One stage and the task, or the instance of a mapped task, that runs it."""

    operator: StageOperator
    map_index: int = -1
    """-1 where the task is not mapped, as Airflow has it."""

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.operator.task_id

    @property
    def uid(self) -> str:
        """The stage's uid."""
        return stage_uid(self.operator.uid, self.map_index)

    @property
    def member_of(self) -> str | None:
        """What all instances of its task are called together; None where the task is not mapped."""
        return self.operator.uid if self.map_index >= 0 else None


def is_stage(task: Any) -> bool:
    """Tell whether a task is a stage, or its instances are."""
    return issubclass(kind_of(task), StageOperator)


def is_mapped(task: Any) -> bool:
    """Tell whether each instance of a task is a stage of its own."""
    return isinstance(task, MappedOperator)


def kind_of(task: Any) -> type:
    """Give the class of a task, of a mapped one that of its instances."""
    return task.operator_class if isinstance(task, MappedOperator) else type(task)


def instances_of(task: Any) -> tuple[StageTask, ...]:
    """Give the stages that a task of a DAG is.

    Raises:
        InvalidConfigError: it is mapped over what is known only at run time, over nothing, over `uid`, or in a mapped
            task group; or an instance is no valid SparkEpochOperator.
        InvalidNameError: the uid becomes too long with an index (semantics W1).
    """
    if task.get_closest_mapped_task_group() is not None:
        raise InvalidConfigError(
            f"{task.task_id} lies in a mapped task group, and only a task that is mapped by itself can be many stages: "
            "write SparkEpochOperator.partial(…).expand(…), or a loop",
            task=task.task_id,
        )
    if not isinstance(task, MappedOperator):
        return (StageTask(task),)
    arguments = list(_arguments(task))
    if not arguments:
        raise InvalidConfigError(
            f"{task.task_id} is mapped over nothing, so it is no stage: take it out", task=task.task_id
        )
    if not _is_function(task) and any("uid" in each for each in arguments):
        raise InvalidConfigError(
            f"{task.task_id} is mapped over uid, but its instances are stages <uid>-0, <uid>-1, …: give one uid in "
            "partial(…)",
            task=task.task_id,
        )
    stages = tuple(_instance(task, index, each) for index, each in enumerate(arguments))
    with naming(task=task.task_id):
        check_name("stage", stages[-1].uid)
    check_room(stages[-1].operator.storage, stages[-1].operator.job, stages[-1].uid, task=task.task_id)
    return stages


def stage_task(task: Any, map_index: int | None) -> StageTask | None:
    """Give the stage that a task instance runs; None if it is none.

    Args:
        task: as Airflow hands it to a callback: the task as it was parsed, or the unmapped one that ran.
        map_index: the task instance's.

    Raises:
        InvalidConfigError: the DAG file has changed, and the task has no such instance any more.
    """
    if not is_stage(task):
        return None
    index = -1 if map_index is None else map_index
    if not isinstance(task, MappedOperator):
        return StageTask(task, index)
    stages = instances_of(task)
    if not 0 <= index < len(stages):
        raise InvalidConfigError(
            "the task has no such instance any more: the DAG file has changed", task=task.task_id, map_index=index
        )
    return stages[index]


def _instance(task: MappedOperator, index: int, arguments: Mapping[str, Any]) -> StageTask:
    with naming(task=task.task_id, map_index=str(index)):
        operator = task.unmap({"op_kwargs": arguments} if _is_function(task) else arguments)
    assert isinstance(operator, StageOperator)  # its class was looked at before
    return StageTask(operator, index)


def _arguments(task: MappedOperator) -> Iterator[Mapping[str, Any]]:
    """Give each instance's own arguments, in the order of Airflow's indexes: the last one varies fastest."""
    value: Any = (task.op_kwargs_expand_input if _is_function(task) else task.expand_input).value
    if isinstance(value, Mapping):
        if not all(_is_known(each) for each in value.values()):
            raise _known_too_late(task)
        columns = [list(each.items()) if isinstance(each, Mapping) else list(each) for each in value.values()]
        yield from (dict(zip(value, row, strict=True)) for row in product(*columns))
    elif isinstance(value, Sequence) and all(isinstance(each, Mapping) for each in value):
        yield from value
    else:
        raise _known_too_late(task)


def _is_function(task: MappedOperator) -> TypeGuard[DecoratedMappedOperator]:
    """Tell a mapped `@task.spark_epoch`: it is mapped over the function's arguments, and not over the operator's."""
    return isinstance(task, DecoratedMappedOperator)


def _is_known(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, XComArg)


def _known_too_late(task: MappedOperator) -> InvalidConfigError:
    return InvalidConfigError(
        f"{task.task_id} is mapped over what another task returns, so the number of its stages is not known when the "
        "checkpoint begins: map over a list that stands in the DAG file, or read the list in the application",
        task=task.task_id,
    )
