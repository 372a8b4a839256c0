"""A job whose stage a service starts and the triggerer waits for; its test is the service."""

from __future__ import annotations

import os
import sys

import airflow
from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, epoch_stage

FOLDER = os.environ["CAIRN_TEST_LAUNCHERS"]
sys.path.append(FOLDER)
airflow.__path__.append(f"{FOLDER}/airflow")

from airflow.providers.apache.livy.operators.livy import LivyOperator  # noqa: E402 - found by the lines above

with (
    DAG("deferred", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    epoch_stage(LivyOperator)(
        task_id="routes", file="s3://lake/routes.py", livy_conn_id="livy_of_the_test", deferrable=True, retries=1
    )
