"""Checks the tasks of a `CheckpointedTaskGroup` when the DAG is parsed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.definitions.mappedoperator import MappedOperator

from ...checkpoint.config import AT_LEAST_ONCE
from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.extensions.contracts import CheckpointListener
from ...checkpoint.rules.failures import regions_of
from ...checkpoint.validation import MIRROR_LISTENER, check_apart
from ...sensors.checkpoint import CheckpointSensor
from ...storage.names import shorten
from ...storage.records import dataclass
from ...tasks.job_settings import CheckpointScope, is_same_job, naming
from ..graph.stages import StageTask, instances_of, is_stage, kind_of
from ..trigger.operator import TriggerCheckpointOperator

if TYPE_CHECKING:
    from ...checkpoint.health.findings import Examination


def stages_in(tasks: Sequence[Any], scope: CheckpointScope, group: str) -> dict[str, tuple[StageTask, ...]]:
    """Return the stages of a group: one for each task, or for each instance of a mapped task.

    Returns:
        The stages by the ids of their tasks, in the order of the DAG file; plain tasks have no entry.
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
        InvalidConfigError: an entry is not an asset. An alias is refused too: it names no asset to send an event for.
    """
    if outlets is None:
        return ()
    if not isinstance(outlets, Sequence) or not all(isinstance(each, Asset) for each in outlets):
        raise InvalidConfigError(
            "outlets must be a list of Airflow's assets: outlets=[Asset('flights')]", outlets=shorten(outlets)
        )
    return tuple(outlets)


def check_uids(stages: Sequence[StageTask], group: str) -> None:
    """Check that each uid stands for one stage, or for all instances of one task.

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
    """Check the stages that read without waiting (semantics B2).

    Raises:
        InvalidConfigError: the mode does not allow it, or a stage reads from a uid that is not a stage.
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
                f"{stage.task_id} has reads= that are not stages of its group: use the stage's uid, as it is written "
                "in uid=, or the task's id within the group",
                group=group,
                task=stage.task_id,
                unknown=", ".join(unknown),
                stages=", ".join(sorted(uids)),
            )


def check_last(task: Any, group: str) -> None:
    """Check that the last task of a group does not skip the task that waits for the checkpoint.

    Raises:
        InvalidConfigError: the last task is a branch: the run would succeed with an incomplete epoch.
    """
    if issubclass(kind_of(task), SkipMixin):
        raise InvalidConfigError(
            f"{task.task_id} may skip what follows it, and that is the task that waits for the checkpoint: the run "
            "would be green with an incomplete epoch. Move the task behind the group",
            group=group,
            task=task.task_id,
        )


def _uids(stages: Sequence[StageTask]) -> Iterator[tuple[str, str]]:
    """Yield each uid with its task's id; each uid must have one meaning (`epoch.read`)."""
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
    """Return whether a class's tasks skip everything downstream; avoids importing that class if the DAG has none."""
    module = sys.modules.get("airflow.providers.standard.operators.python")
    return module is not None and issubclass(kind, module.ShortCircuitOperator)


# The regions of the jobs in a DAG file, for `cairn regions` (semantics F1).


@dataclass(frozen=True, slots=True)
class JobRegions:
    """The regions of one job: the sets of stages that run again together."""

    task: str
    """The id of the task that triggers its checkpoints."""
    job: str
    stages: tuple[StageSpec, ...]

    @property
    def regions(self) -> tuple[tuple[str, ...], ...]:
        """The uids of each region's stages, in the order of the DAG."""
        return ordered(self.stages)


def regions_in(path: str, dag_id: str) -> tuple[JobRegions, ...]:
    """Parse a DAG file as Airflow does, and return the regions of each job of one of its DAGs.

    Raises:
        InvalidConfigError: the file or the DAG does not exist, the file cannot be imported, or the DAG has no
            checkpoint.
    """
    dag = dag_in(path, dag_id)
    found = tuple(_jobs(dag))
    if not found:
        raise InvalidConfigError(
            "the DAG has no checkpointed job: put its SparkEpochOperators into a CheckpointedTaskGroup", dag=dag_id
        )
    return found


def _jobs(dag: DAG) -> Iterator[JobRegions]:
    for task in dag.tasks:
        if isinstance(task, TriggerCheckpointOperator):
            yield JobRegions(task.task_id, str(task.job), task.declared_stages())


def examine_tables_of(dag: DAG, *, write: bool) -> Examination:
    """Check the tables that a DAG's groups declare; see `examine_tables`."""
    from ...tables.health import examine_tables
    from ...tables.sink import TableSink

    triggers = (task for task in dag.tasks if isinstance(task, TriggerCheckpointOperator))
    sinks = [hook for task in triggers for hook in task.master_hooks if isinstance(hook, TableSink)]
    return examine_tables(sinks, write=write)


def dag_in(path: str, dag_id: str) -> DAG:
    """Parse a DAG file as Airflow does, and return one of its DAGs.

    Raises:
        InvalidConfigError: the file or the DAG does not exist, or the file cannot be imported.
    """
    # Imports Airflow's database layer. Each DAG file imports this module, but only commands come here.
    from airflow.dag_processing.dagbag import DagBag

    if not Path(path).is_file():
        raise InvalidConfigError("there is no such DAG file", file=path)
    with _importable(Path(path).resolve().parent):
        bag = DagBag(dag_folder=str(Path(path).resolve()), safe_mode=False)
    for problem in bag.import_errors.values():
        raise InvalidConfigError(f"the DAG file cannot be imported: {problem.strip()}", file=path)
    dag = bag.dags.get(dag_id)
    if dag is None:
        there = ", ".join(sorted(bag.dags)) or "none"
        raise InvalidConfigError("the file holds no DAG of that id", file=path, dag=dag_id, there_is=there)
    return dag


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a DAG file import the modules beside it, as where Airflow runs it."""
    before = list(sys.path)
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


_LINES = 20
"""Maximum number of regions in a tooltip."""


def ordered(stages: tuple[StageSpec, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the regions of a job, and the stages of each, in the order in which the DAG names the stages."""
    position = {stage.uid: number for number, stage in enumerate(stages)}
    return tuple(tuple(sorted(region, key=position.__getitem__)) for region in regions_of(stages))


def tooltip_of(stages: tuple[StageSpec, ...]) -> str:
    """Return a few lines that say which stages run again together."""
    regions = ordered(stages)
    lines = [f"region {number}: {', '.join(region)}" for number, region in enumerate(regions[:_LINES], 1)]
    if len(regions) > _LINES:
        lines.append(f"and {len(regions) - _LINES} more: cairn regions lists them")
    return "\n".join(lines)


def check_mirror(listeners: Sequence[CheckpointListener], storage: str) -> None:
    """Refuse a mirror in, or around, the job's own storage."""
    for each in listeners:
        if isinstance(mirror := getattr(each, "storage", None), str) and each.name == MIRROR_LISTENER:
            check_apart(mirror, storage)
