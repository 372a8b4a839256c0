"""A job with a stage that may lag, on a Spark server; the test of its name says when."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

APPLICATION = str(Path(__file__).parent / "applications" / "lagging.py")


def stage(name: str) -> SparkEpochOperator:
    """Make a stage that a real Spark runs."""
    arguments, conf = [os.environ["CAIRN_TEST_GATES"]], {"spark.sql.shuffle.partitions": "2"}
    return SparkEpochOperator(
        task_id=name, application=APPLICATION, application_args=arguments, conn_id="warm", conf=conf
    )


with (
    DAG("lagging", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup(
        "epoch",
        reads_window=False,
        storage=os.environ["CAIRN_TEST_STORAGE"],
        # max_backlog: the second checkpoint waits for the stage, however late that is.
        config=CheckpointConfig(unaligned=True, alignment_timeout=timedelta(seconds=1), max_backlog=1),
    ),
):
    stage("read") >> stage("count")
    # Reads from nobody, so that no checkpoint completes before it: the test says when, by holding it.
    SparkEpochOperator(task_id="gate", **json.loads(os.environ["CAIRN_TEST_READER"]))
