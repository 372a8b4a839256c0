"""A job of one region with a restart strategy; its stages fail where the test tells it to."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

READER = json.loads(os.environ["CAIRN_TEST_READER"])
THREE = CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=3, delay=timedelta(seconds=1)))

with (
    DAG("restart_strategies", schedule=None, max_active_runs=1, tags=["restart_strategies"]),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"], config=THREE),
):
    a, b = (SparkEpochOperator(task_id=name, **READER) for name in ("a", "b"))
    a >> Pipelined() >> b
