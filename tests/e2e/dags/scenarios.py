"""One DAG a scenario, so that they share one Airflow; what happens to each is up to the test of its name."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.model import StageSpec
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    SparkEpochOperator,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.sensors import CheckpointSensor

APPLICATIONS = Path(__file__).parent / "applications"
STORAGE = os.environ["CAIRN_TEST_STORAGE"]
GATES = os.environ["CAIRN_TEST_GATES"]
AWS_CONN_ID = os.environ.get("CAIRN_TEST_AWS_CONN_ID")
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])

SCENARIO = "scenario"
"""The tag of each DAG that has a healthy epoch before its test."""


def counting(application: str = "counting.py", **options: object) -> SparkEpochOperator:
    """Make the one stage that every scenario has."""
    return SparkEpochOperator(
        task_id="count",
        application=str(APPLICATIONS / application),
        application_args=[GATES],
        conf=CONF,
        retries=2,
        retry_delay=timedelta(seconds=1),
        **options,  # type: ignore[arg-type]
    )


with (
    DAG("cleared_after_completion", schedule=None, max_active_runs=1, tags=[SCENARIO]),
    CheckpointedTaskGroup("epoch", storage=STORAGE, aws_conn_id=AWS_CONN_ID, config=CheckpointConfig(retained=2)),
):
    counting()

with (
    DAG("never_opens_an_epoch", schedule=None),
    CheckpointedTaskGroup("epoch", storage=STORAGE),
):
    SparkEpochOperator(task_id="idle", application=str(APPLICATIONS / "idle.py"), conf=CONF, retries=0)

# The pieces without the group: the sensor waits from the start, next to the stage.
with DAG("triggerer_restarted", schedule=None, max_active_runs=1, tags=[SCENARIO]) as dag:
    job = "triggerer_restarted"
    trigger = TriggerCheckpointOperator(task_id="trigger", storage=STORAGE, job=job, stages=(StageSpec("count"),))
    stage = counting(
        storage=STORAGE,
        job=job,
        on_retry_callback=restore_latest_checkpoint,
        on_failure_callback=restore_latest_checkpoint,
    )
    wait = CheckpointSensor(task_id="wait", storage=STORAGE, job=job, poke_interval=1.0, timeout=300.0)
    trigger >> [stage, wait]
