"""Jobs of which another run completes first; what happens to each is up to the test of its name."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
READER = json.loads(os.environ["CAIRN_TEST_READER"])
ONE = CheckpointConfig(retained=3, tolerable_failed_checkpoints=1)
TWO = CheckpointConfig(retained=3, max_concurrent_checkpoints=2)

# Retries: only the driver of an expired attempt fails; nobody who waits may use one up.
for name, config, retries in (("overtaken_pause", ONE, 0), ("overtaken_expiry", ONE, 1), ("overtaken_overlap", TWO, 0)):
    with (
        DAG(name, schedule=None, max_active_runs=2, tags=["overtaken"]),
        CheckpointedTaskGroup("epoch", storage=STORAGE, config=config, reads_window=False),
    ):
        first, second = (
            SparkEpochOperator(task_id=stage, retries=retries, retry_delay=1, **READER) for stage in ("first", "second")
        )
        first >> second
