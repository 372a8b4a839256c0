"""Asks for what Airflow has from 3.3 on; below, this file is an import error."""

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

with (
    DAG("restarting", schedule=None),
    CheckpointedTaskGroup(
        "epoch",
        storage="file:///lake",
        reads_window=False,
        config=CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=3)),
    ),
):
    SparkEpochOperator(task_id="routes", application="routes.py")
