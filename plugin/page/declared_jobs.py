"""Which jobs a DAG declares, read off the DAG as Airflow has serialised it; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...checkpoint.documents.strict_json import Json
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

    @property
    def is_templated(self) -> bool:
        """Whether only a run knows which job it is, or where it lies."""
        return is_rendered_later(self.storage) or is_rendered_later(self.job)


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
    return DeclaredJob(
        dag_id, task["task_id"], str(task["storage"]), str(task["job"]), further["aws_conn_id"], further["config"]
    )
