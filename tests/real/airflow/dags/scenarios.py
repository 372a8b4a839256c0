"""One DAG a scenario, so that they share one Airflow; what happens in each is up to the test of its name."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import DAG, Asset

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
GATES = os.environ["CAIRN_TEST_GATES"]
AWS_CONN_ID = os.environ.get("CAIRN_TEST_AWS_CONN_ID")
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])

with (
    DAG("cleared_after_completion", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup(
        "epoch",
        reads_window=False,
        storage=STORAGE,
        aws_conn_id=AWS_CONN_ID,
        config=CheckpointConfig(retained=2),
        outlets=[Asset("cleared_after_completion")],
        table_outlets={"recent": Asset("recent_ids")},
    ),
):
    SparkEpochOperator(
        task_id="count",
        application="applications/counting.py",
        application_args=[GATES],
        conf=CONF,
        retries=2,
        retry_delay=timedelta(seconds=1),
    )

with DAG("never_opens_an_epoch", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
    SparkEpochOperator(task_id="idle", application="applications/idle.py", conf=CONF, retries=0)
