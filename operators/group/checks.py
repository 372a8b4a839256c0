"""What a `CheckpointedTaskGroup` refuses of the tasks in it, where the DAG is parsed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.definitions.mappedoperator import MappedOperator

from ...checkpoint.config import AT_LEAST_ONCE
from ...checkpoint.errors import InvalidConfigError
from ...sensors.checkpoint import CheckpointSensor
from ...storage.names import shorten
from ...tasks.job_settings import CheckpointScope, is_same_job, naming
from ..graph.stages import StageTask, instances_of, is_stage, kind_of
from ..trigger.operator import TriggerCheckpointOperator


def stages_in(tasks: Sequence[Any], scope: CheckpointScope, group: str) -> dict[str, tuple[StageTask, ...]]:
    """Find the stages of a group: one for each task, or for each instance of a mapped one.

    Returns:
        The stages by the ids of their tasks, in the order of the DAG file; plain tasks have none.

    Raises:
        InvalidConfigError: a task looks like a stage and is none, does what the group's own tasks do, is of another
            storage or job, or is mapped in a way that makes no stages.
    """
    found = {}
    for task in tasks:
        if is_stage(task):
            with naming(group=group):
                found[task.task_id] = instances_of(task)
            _check_job(found[task.task_id], scope, group)
        else:
            _check_plain(task, group)
    return found


def check_outlets(outlets: object) -> tuple[Asset, ...]:
    """Check the assets that get an event of each completed checkpoint.

    Raises:
        InvalidConfigError: something is no asset; an alias is none either, because it names none to send an event of.
    """
    if outlets is None:
        return ()
    if not isinstance(outlets, Sequence) or not all(isinstance(each, Asset) for each in outlets):
        raise InvalidConfigError(
            "outlets must be a list of Airflow's assets: outlets=[Asset('flights')]", outlets=shorten(outlets)
        )
    return tuple(outlets)


def check_uids(stages: Sequence[StageTask], group: str) -> None:
    """Check that a uid means one stage, or all instances of one task.

    Raises:
        InvalidConfigError: two tasks have one uid.
    """
    seen: dict[str, str] = {}
    for uid, task_id in _uids(stages):
        other = seen.setdefault(uid, task_id)
        if other != task_id:
            raise InvalidConfigError(
                f"{other} and {task_id} have the same uid: give one of them another (uid='…')", group=group, uid=uid
            )


def check_reads(stages: Sequence[StageTask], mode: str, group: str) -> None:
    """Check what stages read without waiting for it (semantics B2).

    Raises:
        InvalidConfigError: one does although the mode does not allow it, or reads from what is no stage.
    """
    uids = {uid for uid, _ in _uids(stages)}
    for stage in stages:
        reads = stage.operator.reads
        if reads and mode != AT_LEAST_ONCE:
            raise InvalidConfigError(
                f"{stage.task_id} reads from stages without waiting for them, and that loses input unless the "
                "config has mode='at_least_once'. Set that, or draw an edge instead of reads",
                group=group,
                task=stage.task_id,
                reads=", ".join(reads),
            )
        unknown = sorted(set(reads) - uids)
        if unknown:
            raise InvalidConfigError(
                f"{stage.task_id} reads from what is no stage of its group: use the stage's uid, as it is written "
                "in uid=, or the task's id within the group",
                group=group,
                task=stage.task_id,
                unknown=", ".join(unknown),
                stages=", ".join(sorted(uids)),
            )


def check_last(task: Any, group: str) -> None:
    """Check that the last task of a group does not skip what waits for the checkpoint.

    Raises:
        InvalidConfigError: it is a branch: the run would be green, and its epoch incomplete.
    """
    if issubclass(kind_of(task), SkipMixin):
        raise InvalidConfigError(
            f"{task.task_id} may skip what follows it, and that is the task that waits for the checkpoint: the run "
            "would be green with an incomplete epoch. Move the task behind the group",
            group=group,
            task=task.task_id,
        )


def _uids(stages: Sequence[StageTask]) -> Iterator[tuple[str, str]]:
    """Give every uid that means something, with its task's id; each must mean one thing (`epoch.read`)."""
    for stage in stages:
        yield stage.uid, stage.task_id
        if stage.member_of is not None:
            yield stage.member_of, stage.task_id


def _check_job(stages: Sequence[StageTask], scope: CheckpointScope, group: str) -> None:
    for stage in stages:
        operator = stage.operator
        if not is_same_job(operator, scope):
            raise InvalidConfigError(
                f"{stage.task_id} names another storage or job than its group: remove them from the task",
                group=group,
                task=stage.task_id,
                job=operator.job,
                expected=scope.job,
            )
        if operator.aws_conn_id != scope.aws_conn_id:
            raise InvalidConfigError(
                f"{stage.task_id} names another aws_conn_id than its group, and the tasks of an epoch read and write "
                "one storage with one identity: remove it from the task, or give it to the group",
                group=group,
                task=stage.task_id,
                aws_conn_id=operator.aws_conn_id,
                expected=scope.aws_conn_id or "none, so boto3's own chain",
            )


def _check_plain(task: Any, group: str) -> None:
    kind = kind_of(task)
    if issubclass(kind, SparkSubmitOperator):
        raise InvalidConfigError(
            f"{task.task_id} is of type {kind.__name__}, which cannot acknowledge a checkpoint: make it a "
            "SparkEpochOperator, or move the task before or after the group",
            group=group,
            task=task.task_id,
        )
    if issubclass(kind, TriggerCheckpointOperator | CheckpointSensor):
        raise InvalidConfigError(
            f"{task.task_id} is of type {kind.__name__}, and the group adds its own: take the task out",
            group=group,
            task=task.task_id,
        )
    ignores = task.partial_kwargs if isinstance(task, MappedOperator) else vars(task)
    if _short_circuits(kind) and ignores.get("ignore_downstream_trigger_rules", True):
        raise InvalidConfigError(
            f"{task.task_id} would skip the task that waits for the checkpoint too, and leave the run green with an "
            "incomplete epoch: give it ignore_downstream_trigger_rules=False, or move it before the group",
            group=group,
            task=task.task_id,
        )


def _short_circuits(kind: type) -> bool:
    """Tell whether tasks of a class skip all that is downstream of them; a DAG without them does not load theirs."""
    module = sys.modules.get("airflow.providers.standard.operators.python")
    return module is not None and issubclass(kind, module.ShortCircuitOperator)
