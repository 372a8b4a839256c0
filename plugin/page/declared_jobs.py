"""Which jobs a DAG declares, read off the DAG as Airflow has serialised it; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...checkpoint.documents.strict_json import Json
from ...tasks.job_settings import is_rendered_later


@dataclass(frozen=True, slots=True)
class DeclaredStage:
    """One stage, or all stages of a mapped task, as the DAG draws them."""

    uid: str
    task_id: str | None
    """None where no task is known."""
    instances: int
    """Of a mapped task; 0 where it is not mapped."""
    reads: tuple[str, ...]
    pipelined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A job, as the DAG's task says that triggers its checkpoints."""

    dag_id: str
    task_id: str
    storage: str
    job: str
    aws_conn_id: str | None
    config: dict[str, Json]
    stages: tuple[DeclaredStage, ...]

    @property
    def is_templated(self) -> bool:
        """Whether only a run knows which job it is, or where it lies."""
        return is_rendered_later(self.storage) or is_rendered_later(self.job)

    def declared(self, stage: str) -> DeclaredStage | None:
        """Find what the DAG draws for a stage of a checkpoint; None where it no longer has that stage.

        Args:
            stage: its uid; of an instance of a mapped task with its index.
        """
        by_uid = {each.uid: each for each in self.stages}
        if stage in by_uid:
            return by_uid[stage]
        found = by_uid.get(stage.rpartition("-")[0])
        return found if found is not None and instance_of(found, stage) is not None else None


def instance_of(declared: DeclaredStage, stage: str) -> int | None:
    """Give the map index of a stage; None where its task is not mapped, or has no such instance."""
    index = stage.removeprefix(f"{declared.uid}-")
    return int(index) if index.isdecimal() and int(index) < declared.instances else None


def declared_jobs(serialized: Mapping[str, Any]) -> tuple[DeclaredJob, ...]:
    """Give the jobs of a DAG, in the order of the ids of the tasks that trigger them.

    Args:
        serialized: the DAG as `SerializedDagModel.data` has it.
    """
    dag = serialized["dag"]
    tasks = (task["__var"] for task in dag["tasks"])
    triggers = sorted((task for task in tasks if "cairn_job" in task), key=lambda task: str(task["task_id"]))
    return tuple(_job(dag["dag_id"], task, json.loads(task["cairn_job"])) for task in triggers)


def _job(dag_id: str, task: Mapping[str, Any], further: Mapping[str, Any]) -> DeclaredJob:
    stages = tuple(
        DeclaredStage(each["uid"], each["task_id"], each["instances"], tuple(each["reads"]), tuple(each["pipelined"]))
        for each in further["stages"]
    )
    named = str(task["storage"]), str(task["job"])
    return DeclaredJob(dag_id, task["task_id"], *named, further["aws_conn_id"], further["config"], stages)
