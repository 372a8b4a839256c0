"""Which jobs a DAG declares, read off the DAG as Airflow has serialised it; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.failures.regions import regions_of
from ...checkpoint.views.drawn_stages import DrawnStage
from ...hooks.clear_body import TaskRef
from ...storage.errors import CairnError
from ...storage.uris import check_storage_uri
from ...tasks.job_settings import is_rendered_later


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A job, as the DAG's task says that triggers its checkpoints."""

    dag_id: str
    task_id: str
    storage: str
    job: str
    aws_conn_id: str | None
    config: dict[str, Json]
    stages: tuple[DrawnStage, ...]

    @property
    def is_templated(self) -> bool:
        """Whether only a run knows which job it is, or where it lies."""
        return is_rendered_later(self.storage) or is_rendered_later(self.job)

    @property
    def savepoint_target(self) -> str | None:
        """Where the DAG has the job's savepoints made; the pages open no other place (semantics W10)."""
        target = self.config.get("savepoint_target")
        return target if isinstance(target, str) else None

    @property
    def specs(self) -> tuple[StageSpec, ...]:
        """The stages as the protocol has them, a mapped task as one."""
        return tuple(StageSpec(each.uid, each.reads, pipelined=each.pipelined) for each in self.stages)

    def drawn(self, stage: str) -> tuple[DrawnStage, int | None] | None:
        """Find what the DAG draws for a stage of a checkpoint; None where it no longer has that stage.

        Args:
            stage: its uid; of an instance of a mapped task with its index.

        Returns:
            The stage, or the mapped task, and its instance's index.
        """
        by_uid = {each.uid: each for each in self.stages}
        if stage in by_uid:
            return by_uid[stage], None
        name, _, index = stage.rpartition("-")
        found = by_uid.get(name)
        return (found, int(index)) if found and index.isdecimal() and int(index) < found.instances else None

    def region(self, stage: str) -> dict[str, tuple[TaskRef, ...]]:
        """Give the tasks of the stages that run again with one, that one too; empty where the DAG has no such stage.

        Args:
            stage: its uid; of an instance of a mapped task with its index.
        """
        drawn = self.drawn(stage)
        if drawn is None:
            return {}
        region = next(uids for uids in regions_of(self.specs) if drawn[0].uid in uids)
        return {each.uid: _tasks(each) for each in self.stages if each.uid in region}


def declared_jobs(serialized: Mapping[str, Any]) -> tuple[DeclaredJob, ...]:
    """Give the jobs of a DAG, in the order of the ids of the tasks that trigger them.

    Args:
        serialized: the DAG as `SerializedDagModel.data` has it.
    """
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
    """Spell a storage's URI as all of Cairn does: what is read and done there is remembered under it.

    A template, and what a DAG names that is no storage, stay as they are.
    """
    with suppress(CairnError):
        return check_storage_uri(storage)
    return storage
