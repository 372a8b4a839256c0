"""The regions of the jobs in a DAG file, for `cairn regions` (semantics F1)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.failures.regions import regions_of
from ..trigger.operator import TriggerCheckpointOperator


@dataclass(frozen=True, slots=True)
class JobRegions:
    """What of one job runs again together."""

    task: str
    """The task that triggers its checkpoints."""
    job: str
    stages: tuple[StageSpec, ...]

    @property
    def regions(self) -> tuple[tuple[str, ...], ...]:
        """The uids of each region's stages, in the order in which the DAG names them."""
        return ordered(self.stages)


def regions_in(path: str, dag_id: str) -> tuple[JobRegions, ...]:
    """Parse a DAG file as Airflow does, and give the regions of each job of one DAG in it.

    Raises:
        InvalidConfigError: there is no such file or DAG, the file cannot be imported, or the DAG has no checkpoint.
    """
    dag = _parsed(path, dag_id)
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


def _parsed(path: str, dag_id: str) -> DAG:
    # With Airflow's database behind it; each DAG file imports this module, and only `cairn regions` comes here.
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
    """Let a DAG file import what lies beside it, as where Airflow runs it."""
    before = list(sys.path)
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


_LINES = 20
"""Regions in a tooltip, at most."""


def ordered(stages: tuple[StageSpec, ...]) -> tuple[tuple[str, ...], ...]:
    """Give the regions of a job, and the stages of each, in the order in which the DAG names the stages."""
    position = {stage.uid: number for number, stage in enumerate(stages)}
    return tuple(tuple(sorted(region, key=position.__getitem__)) for region in regions_of(stages))


def tooltip_of(stages: tuple[StageSpec, ...]) -> str:
    """Say in a few lines what runs again together."""
    regions = ordered(stages)
    lines = [f"region {number}: {', '.join(region)}" for number, region in enumerate(regions[:_LINES], 1)]
    if len(regions) > _LINES:
        lines.append(f"and {len(regions) - _LINES} more: cairn regions lists them")
    return "\n".join(lines)
