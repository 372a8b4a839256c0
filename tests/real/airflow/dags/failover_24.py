"""A pipeline whose file its test edits while a run goes on: a stage leaves it, and comes back."""

from __future__ import annotations

import json
import os
from itertools import pairwise

from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

READER = json.loads(os.environ["CAIRN_TEST_READER"])
STAGES = ("a", "b", "c")

with (
    DAG("failover_24", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    made = [SparkEpochOperator(task_id=stage, retries=0, **READER) for stage in STAGES]
    for before, after in pairwise(made):
        before >> after
