"""A DAG on a `CheckpointTimetable` with nothing to run, and one that is paused in the middle of an epoch."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.plugin import CheckpointTimetable

with DAG(
    "on_a_schedule",
    schedule=CheckpointTimetable(timedelta(seconds=5), min_pause=timedelta(seconds=2), jitter="on_a_schedule"),
    catchup=False,
    tags=["by_its_test"],
):
    EmptyOperator(task_id="nothing")

READER = {**json.loads(os.environ["CAIRN_TEST_READER"]), "retries": 0}

with (
    DAG("paused", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    SparkEpochOperator(task_id="clean", **READER) >> SparkEpochOperator(task_id="routes", **READER)
