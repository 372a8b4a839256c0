"""One stage that runs in YARN's containers: connection and conf alone say so."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

with (
    DAG("on_yarn", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup(
        "epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"], config=CheckpointConfig(retained=2)
    ),
):
    SparkEpochOperator(
        task_id="count",
        application=str(Path(__file__).parent / "applications" / "whereabouts.py"),
        application_args=[os.environ["CAIRN_TEST_GATES"]],
        conf=json.loads(os.environ["CAIRN_TEST_SPARK_CONF"]),
        yarn_track_via_rm_api=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
