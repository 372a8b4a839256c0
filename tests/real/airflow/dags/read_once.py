"""The README's shape of DAG: a day a run, no source. What happens when a person triggers it is up to its test."""

from __future__ import annotations

import json
import os

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

DAY = pendulum.datetime(2001, 1, 1, tz="UTC")

with (
    DAG(
        "read_once",
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
        start_date=DAY,
        # Two days by the schedule; a run by hand may be for the second afternoon.
        end_date=DAY.add(days=1, hours=18),
        catchup=True,
        max_active_runs=1,
        tags=["by_its_test"],
    ),
    CheckpointedTaskGroup("epoch", storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    SparkEpochOperator(task_id="read", retries=0, **json.loads(os.environ["CAIRN_TEST_READER"]))

with (
    DAG(
        "after_a_pause",
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
        start_date=DAY,
        catchup=False,
        max_active_runs=1,
        tags=["by_its_test"],
    ),
    CheckpointedTaskGroup(
        "epoch", storage=os.environ["CAIRN_TEST_STORAGE"], config=CheckpointConfig(on_gap="refuse", retained=20)
    ),
):
    SparkEpochOperator(task_id="read", retries=0, **json.loads(os.environ["CAIRN_TEST_READER"]))
