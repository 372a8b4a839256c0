"""What other tasks ask of a stage's task, whatever it does when it runs."""

from __future__ import annotations

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator

from .exchange import Exchange


class StageOperator(SparkSubmitOperator):
    """The declared side of a stage: `SparkEpochOperator` fills it in and runs it.

    The DAG's topology is read off these attributes, and the stage that runs asks the topology for its siblings.
    """

    storage: str | None
    job: str | None
    aws_conn_id: str | None
    airflow_api_conn_id: str | None
    uid: str
    parallelism: int | None
    max_parallelism: int | None
    reads: tuple[str, ...]
    exchange: Exchange | None


class TriggerOperator(BaseOperator):
    """The declared side of the task that triggers a job's checkpoints: `TriggerCheckpointOperator` runs it."""

    storage: str | None
    job: str | None


def stage_uid(uid: str, map_index: int | None) -> str:
    """Give the uid of the stage that a task instance runs.

    Args:
        uid: the task's.
        map_index: the instance's; None or -1 where the task is not mapped.
    """
    return uid if map_index is None or map_index < 0 else f"{uid}-{map_index}"
