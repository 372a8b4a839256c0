"""A job of one region with a restart strategy; `reader.py` stands for Spark, and fails where the test tells it to."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

THREE = CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=3, delay=timedelta(seconds=1)))

with (
    DAG("restart_strategies", schedule=None, max_active_runs=1, tags=["restart_strategies"]),
    CheckpointedTaskGroup("epoch", storage=os.environ["CAIRN_TEST_STORAGE"], config=THREE),
):
    a, b = (
        SparkEpochOperator(task_id=name, application="none.py", spark_binary="spark3-submit") for name in ("a", "b")
    )
    a >> Pipelined() >> b
