"""The pipeline of `bench.last_ack`: two stages in a line; a DAG file, put into the DAGs' folder of its Airflow."""

from __future__ import annotations

import json
import os
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

TOLD: dict[str, Any] = json.loads(os.environ["CAIRN_BENCH"])

with (
    DAG("last_ack", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", storage=TOLD["storage"], reads_window=False),
):
    first, last = (
        SparkEpochOperator(task_id=name, application=TOLD["application"], conf=TOLD["conf"])
        for name in ("first", "last")
    )
    first >> last
