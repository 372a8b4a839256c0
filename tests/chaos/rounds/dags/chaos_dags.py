"""The pipelines that rounds of chaos strike: one needs Spark, and all keep what the auditor knows how to read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

CONFIG = CheckpointConfig(retained=2, timeout=timedelta(minutes=10), tolerable_failed_checkpoints=5)
STAGE: dict[str, Any] = {"application": __file__, "retries": 6, "retry_delay": timedelta(seconds=1)}
CHANGED: frozenset[str] = frozenset()
"""A round changes this line: `extra` adds a stage to `wide`, `renamed` gives its last one's task another name."""
SPARK: dict[str, Any] = {**STAGE, **json.loads(os.environ["CHAOS_SPARK"])}
GATES = os.environ["CHAOS_GATES"]


def group(places: int = 1) -> CheckpointedTaskGroup:
    """Make the checkpointed group of a DAG.

    Args:
        places: how many checkpoints may be pending at once.
    """
    config = replace(CONFIG, max_concurrent_checkpoints=places)
    return CheckpointedTaskGroup(
        "epoch", reads_window=False, storage=os.environ["CHAOS_STORAGE"], aws_conn_id="chaos", config=config
    )


with DAG("fast", schedule=None, max_active_runs=1), group():
    source = SparkEpochOperator(task_id="src", **STAGE)
    left = SparkEpochOperator(task_id="left", **STAGE)
    right = SparkEpochOperator(task_id="right", **STAGE)
    end = SparkEpochOperator(task_id="end", **STAGE)
    source >> Pipelined() >> left
    source >> right
    [left, right] >> end

with DAG("wide", schedule=None, max_active_runs=1), group():
    first = SparkEpochOperator(task_id="first", **STAGE)
    parts = SparkEpochOperator.partial(task_id="parts", **STAGE).expand(application_args=[["0"], ["1"]])
    last = SparkEpochOperator(task_id="final" if "renamed" in CHANGED else "last", uid="last", **STAGE)
    first >> Pipelined() >> parts >> last
    if "extra" in CHANGED:
        first >> SparkEpochOperator(task_id="extra", **STAGE)

with DAG("overlap", schedule=None, max_active_runs=2), group():
    SparkEpochOperator(task_id="one", **STAGE) >> SparkEpochOperator(task_id="two", **STAGE)

with DAG("overtaken", schedule=None, max_active_runs=2), group(places=2):
    SparkEpochOperator(task_id="one", **STAGE) >> SparkEpochOperator(task_id="two", **STAGE)

with DAG("spark", schedule=None, max_active_runs=1), group():
    reader = SparkEpochOperator(task_id="first", application_args=[GATES], **SPARK)
    keepers = SparkEpochOperator.partial(task_id="parts", **SPARK).expand(application_args=[[GATES, "first"]] * 2)
    writer = SparkEpochOperator(task_id="last", application_args=[GATES, "parts-0"], **SPARK)
    reader >> Pipelined() >> keepers >> writer
