"""A job of the stages that the tests' world plays: no task of it ever runs."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
CONFIG = CheckpointConfig(retained=3, timeout=timedelta(hours=2), savepoint_target=f"{STORAGE}-savepoints")

with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE, config=CONFIG):
    clean, routes, airports, report = (
        SparkEpochOperator(task_id=name, application="not-started.py")
        for name in ("clean", "routes", "airports", "report")
    )
    clean >> [routes, airports]
    routes >> report
