"""Row 20 of docs/failover.md: one region with a restart strategy; its stages fail where the test tells them to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

READER: dict[str, Any] = json.loads(os.environ["CAIRN_TEST_READER"])
CLIENT = {"application": str(Path(__file__).parent / "applications" / "folding.py"), "conn_id": "warm"}
THREE = CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=3, delay=timedelta(seconds=1)))


def region(dag_id: str, second: Mapping[str, Any]) -> None:
    """Make the job."""
    with (
        DAG(dag_id, schedule=None, max_active_runs=1, tags=["restart_strategies"]),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"], config=THREE),
    ):
        a, b = SparkEpochOperator(task_id="a", **READER), SparkEpochOperator(task_id="b", **second)
        a >> Pipelined() >> b


region("failover_20", READER)
region("failover_20_connect", CLIENT)
