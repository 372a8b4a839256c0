"""Jobs of which savepoints are taken, on a real S3 server; the test of each name says what happens."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.checkpoint import DataInterval
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator, StopWithSavepointOperator, savepoint_dag

APPLICATIONS = Path(__file__).parent / "applications"
LAKE: dict[str, Any] = {"storage": "s3://savepoints/jobs", "aws_conn_id": "savepoints_s3"}
KEPT = "s3://savepoints/kept"
KEEPING: dict[str, Any] = {
    "application": str(APPLICATIONS / "keeping.py"),
    "application_args": [os.environ["CAIRN_TEST_GATES"]],
    "conf": json.loads(os.environ["CAIRN_TEST_READER"])["conf"],
    "retries": 0,
}
FIRST_EVENT, LAST_EVENT = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 4, 11, tzinfo=UTC)
HOUR_S = 3600

with (
    DAG("savepoints_job", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, **LAKE),
):
    SparkEpochOperator(task_id="keep", **KEEPING)

# Over in the past, so that all nights are those that the test asks for.
nightly = savepoint_dag(
    "savepoints_job",
    "@daily",
    KEPT,
    keep=3,
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    end_date=datetime(2020, 1, 10, tzinfo=UTC),
    **LAKE,
)

with (
    DAG("savepoints_stop", schedule=None, max_active_runs=2),
    CheckpointedTaskGroup("epoch", reads_window=False, **LAKE),
):
    SparkEpochOperator(task_id="first", **KEEPING) >> SparkEpochOperator(task_id="second", **KEEPING)

with (
    DAG("savepoints_drain", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", storage=os.environ["CAIRN_TEST_STORAGE"], source=DataInterval()),
):
    SparkEpochOperator(
        task_id="windows",
        application=str(APPLICATIONS / "windows.py"),
        application_args=[
            os.environ["CAIRN_TEST_GATES"],
            *(str(int(each.timestamp()) // HOUR_S) for each in (FIRST_EVENT, LAST_EVENT)),
        ],
        conn_id="warm",
        conf={"spark.sql.shuffle.partitions": "2"},
        retries=0,
    )

with DAG("savepoints_drain_it", schedule=None):
    StopWithSavepointOperator(
        task_id="stop",
        storage=os.environ["CAIRN_TEST_STORAGE"],
        job="savepoints_drain",
        target=KEPT,
        target_aws_conn_id=LAKE["aws_conn_id"],
        drain=True,
        poll_interval=1,
    )
