"""Jobs into which people reach: they clear, mark and delete; what happens to each is up to the test of its name."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]


def stage(name: str) -> SparkEpochOperator:
    """Make a stage; the test puts `reader.py` into the place of `spark3-submit`."""
    return SparkEpochOperator(task_id=name, application="none.py", spark_binary="spark3-submit", retries=0)


for name in ("hands_clear", "hands_mark", "hands_delete", "hands_rewind"):
    with (
        DAG(name, schedule=None, max_active_runs=1, tags=["hands"]),
        CheckpointedTaskGroup("epoch", storage=STORAGE, config=CheckpointConfig(retained=3)),
    ):
        stage("first") >> stage("second")
