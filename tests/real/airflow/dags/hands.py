"""Jobs into which people reach: they clear, mark and delete; what happens to each is up to the test of its name."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
READER = json.loads(os.environ["CAIRN_TEST_READER"])


def stage(name: str) -> SparkEpochOperator:
    """Make a stage."""
    return SparkEpochOperator(task_id=name, retries=0, **READER)


for name in ("hands_clear", "hands_mark", "hands_delete", "hands_rewind"):
    with (
        DAG(name, schedule=None, max_active_runs=1, tags=["hands"]),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE, config=CheckpointConfig(retained=3)),
    ):
        stage("first") >> stage("second")
