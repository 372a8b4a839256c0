"""Jobs of one region, `src` ~ `left`; the tests renew the task of `src` in every way, and then fail `left`."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

READER = json.loads(os.environ["CAIRN_TEST_READER"])
WAYS = (
    *("retried", "cleared", "cleared_downstream", "cleared_run", "marked_failed", "marked_success"),
    *("cleared_by_cairn", "left_lost"),
)

for way in WAYS:
    with (
        DAG(f"renewed_{way}", schedule=None, max_active_runs=1, tags=["renewed"]),
        CheckpointedTaskGroup("epoch", storage=os.environ["CAIRN_TEST_STORAGE"], reads_window=False),
    ):
        src, left = (
            SparkEpochOperator(task_id=name, retries=4, retry_delay=timedelta(seconds=1), **READER)
            for name in ("src", "left")
        )
        src >> Pipelined() >> left
