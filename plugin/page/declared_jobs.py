"""The jobs that a DAG declares, read from Airflow's serialised DAG; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.rules.failures import regions_of
from ...checkpoint.views.drawn_stages import DrawnStage, box_of, specs_of
from ...hooks.task_refs import TaskRef
from ...storage.errors import CairnError
from ...storage.names import check_storage_uri
from ...storage.records import dataclass
from ...tasks.job_settings import is_rendered_later


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A job, as declared by the DAG's task that triggers its checkpoints."""

    dag_id: str
    task_id: str
    storage: str
    job: str
    aws_conn_id: str | None
    config: dict[str, Json]
    stages: tuple[DrawnStage, ...]

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Storage, connection and name: DAGs that give the same mean one job."""
        return self.storage, self.aws_conn_id, self.job

    @property
    def is_templated(self) -> bool:
        """Whether the job's name or storage is known only in a run."""
        return is_rendered_later(self.storage) or is_rendered_later(self.job)

    @property
    def savepoint_target(self) -> str | None:
        """The DAG's target for the job's savepoints; the pages open no other folder (semantics W10)."""
        target = self.config.get("savepoint_target")
        return target if isinstance(target, str) else None

    @property
    def specs(self) -> tuple[StageSpec, ...]:
        """The stages in the protocol's form, a mapped task as one."""
        return specs_of(self.stages)

    def drawn(self, stage: str) -> tuple[DrawnStage, int | None] | None:
        """Return the DAG's drawn stage for a stage of a checkpoint, as `box_of` does; None if the DAG has none."""
        return box_of(self.stages, stage)

    def region(self, stage: str) -> dict[str, tuple[TaskRef, ...]]:
        """Return the tasks of the stages that run again with one, including itself; empty if the DAG has no such stage.

        The uid of an instance of a mapped task has the index.
        """
        drawn = self.drawn(stage)
        if drawn is None:
            return {}
        region = next(uids for uids in regions_of(self.specs) if drawn[0].uid in uids)
        return {each.uid: _tasks(each) for each in self.stages if each.uid in region}


def declared_jobs(serialized: Mapping[str, Any]) -> tuple[DeclaredJob, ...]:
    """Return the jobs of a DAG (`SerializedDagModel.data`), in the order of the tasks that trigger them."""
    dag = serialized["dag"]
    tasks = (task["__var"] for task in dag["tasks"])
    triggers = sorted((task for task in tasks if "cairn_job" in task), key=lambda task: str(task["task_id"]))
    return tuple(_job(dag["dag_id"], task, json.loads(task["cairn_job"])) for task in triggers)


def _tasks(stage: DrawnStage) -> tuple[TaskRef, ...]:
    if stage.task_id is None:
        return ()
    if stage.instances:
        return tuple(TaskRef(stage.task_id, index) for index in range(stage.instances))
    return (TaskRef(stage.task_id),)


def _job(dag_id: str, task: Mapping[str, Any], further: Mapping[str, Any]) -> DeclaredJob:
    stages = tuple(
        DrawnStage(each["uid"], each["task_id"], each["instances"], tuple(each["reads"]), tuple(each["pipelined"]))
        for each in further["stages"]
    )
    named = spelled(str(task["storage"])), str(task["job"])
    return DeclaredJob(dag_id, task["task_id"], *named, further["aws_conn_id"], further["config"], stages)


def spelled(storage: str) -> str:
    """Normalise a storage's URI, for one key in all caches; a template, or a text of another kind, stays unchanged."""
    with suppress(CairnError):
        return check_storage_uri(storage)
    return storage
