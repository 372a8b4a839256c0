"""Maps tasks to stages: a task is one stage, each instance of a mapped task is a stage of its own (semantics F1).

The number of stages must be known when the DAG is parsed: a checkpoint fixes at its start which stages must
acknowledge.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeGuard

from airflow.sdk import XComArg
from airflow.sdk.bases.decorator import DecoratedMappedOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator

from ...checkpoint.errors import InvalidConfigError
from ...storage.names import check_name
from ...storage.records import dataclass
from ...tasks.job_settings import check_room, naming
from .declaration import StageOperator, stage_uid


@dataclass(frozen=True, slots=True)
class StageTask:
    """A stage, and the task or the instance of a mapped task that runs it."""

    operator: StageOperator
    map_index: int = -1
    """-1 if the task is not mapped, as in Airflow."""

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
        """The common name of all instances of its task; None if the task is not mapped."""
        return self.operator.uid if self.map_index >= 0 else None


def is_stage(task: Any) -> bool:
    """Return whether a task is a stage, or each of its instances is."""
    return issubclass(kind_of(task), StageOperator)


def is_mapped(task: Any) -> bool:
    """Return whether each instance of a task is a stage of its own."""
    return isinstance(task, MappedOperator)


def kind_of(task: Any) -> type:
    """Return the class of a task; for a mapped task, the class of its instances."""
    return task.operator_class if isinstance(task, MappedOperator) else type(task)


def instances_of(task: Any) -> tuple[StageTask, ...]:
    """Return the stages that a task of a DAG makes.

    Raises:
        InvalidConfigError: the task is mapped over values known only at run time, over nothing, over `uid`, or in a
            mapped task group; or an instance is not a valid SparkEpochOperator.
        InvalidKeyError: the uid becomes too long with an index (semantics W1).
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
            f"{task.task_id} is mapped over nothing, so it is not a stage: take it out", task=task.task_id
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
    """Return the stage that a task instance runs; None if it runs none.

    Args:
        task: as Airflow passes it to a callback: the parsed task, or the unmapped one that ran.
        map_index: the task instance's map index.

    Raises:
        InvalidConfigError: the DAG file has changed, and the task no longer has this instance.
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
    assert isinstance(operator, StageOperator)  # the caller has checked the class
    return StageTask(operator, index)


def _arguments(task: MappedOperator) -> Iterator[Mapping[str, Any]]:
    """Yield each instance's own arguments, in the order of Airflow's indexes: the last argument varies fastest."""
    value: Any = (task.op_kwargs_expand_input if _is_function(task) else task.expand_input).value
    if isinstance(value, Mapping):
        if not all(isinstance(each, Mapping | Sequence) and not isinstance(each, XComArg) for each in value.values()):
            raise _known_too_late(task)
        columns = [list(each.items()) if isinstance(each, Mapping) else list(each) for each in value.values()]
        yield from (dict(zip(value, row, strict=True)) for row in product(*columns))
    elif isinstance(value, Sequence) and all(isinstance(each, Mapping) for each in value):
        yield from value
    else:
        raise _known_too_late(task)


def _is_function(task: MappedOperator) -> TypeGuard[DecoratedMappedOperator]:
    """Return whether a task is a mapped `@task.spark_epoch`: that maps the function's arguments, not the operator's."""
    return isinstance(task, DecoratedMappedOperator)


def _known_too_late(task: MappedOperator) -> InvalidConfigError:
    return InvalidConfigError(
        f"{task.task_id} is mapped over what another task returns, so the number of its stages is not known when the "
        "checkpoint begins: map over a list that stands in the DAG file, or read the list in the application",
        task=task.task_id,
    )


# Plain tasks in a group that start Spark by themselves: no checkpoint covers them.
#
# A plain task may do anything, so it is not refused. But its output is not part of the checkpoint: a failover neither
# takes the output back nor restores its input, and a retry writes the output once more.


WITHOUT_ITS_NAME = frozenset(
    {
        "LivyOperator",
        "GlueJobOperator",
        "EmrAddStepsOperator",
        "EmrContainerOperator",
        "EmrServerlessStartJobOperator",
        "DataprocSubmitJobOperator",
        "DataprocCreateBatchOperator",
        "DatabricksRunNowOperator",
        "DatabricksSubmitRunOperator",
        "DatabricksNotebookOperator",
        "DatabricksTaskOperator",
    }
)
"""Operators of Airflow's providers that run Spark without saying so in their names."""


class UncoveredSparkWarning(UserWarning):
    """A task in a `CheckpointedTaskGroup` runs Spark, and no checkpoint covers its output."""


def warn_of_uncovered_spark(tasks: Iterable[Any], group: str) -> None:
    """Warn about the plain tasks of a group that run Spark."""
    for task in tasks:
        kind = kind_of(task)
        if not is_stage(task) and runs_spark(kind):
            warnings.warn(
                f"{task.task_id}, in the group {group}, is of type {kind.__name__}: it runs Spark, and no checkpoint "
                f"covers what it reads and writes. Make it {_as_stage(kind)}, or move it before or after the group. "
                "To keep it there, ignore UncoveredSparkWarning",
                UncoveredSparkWarning,
                stacklevel=2,
            )


def _as_stage(kind: type) -> str:
    from ...launchers.launcher import has_launcher  # few parses warn

    return f"a stage, epoch_stage({kind.__name__})(…)" if has_launcher(kind) else "a SparkEpochOperator"


def runs_spark(kind: type) -> bool:
    """Return whether an operator runs Spark, judging by its name and those of its base classes."""
    names = {each.__name__ for each in kind.__mro__}
    return any("spark" in name.lower() for name in names) or not names.isdisjoint(WITHOUT_ITS_NAME)
