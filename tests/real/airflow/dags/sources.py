"""Jobs that read from sources; what happens to each is up to the test of its name."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset

from airflow_cairn.checkpoint import AssetEvents, CheckpointConfig, FileSource
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
GATES = Path(os.environ["CAIRN_TEST_GATES"])
READER = json.loads(os.environ["CAIRN_TEST_READER"])


def reading() -> SparkEpochOperator:
    """Make the one stage."""
    return SparkEpochOperator(task_id="read", retries=2, retry_delay=timedelta(seconds=1), **READER)


with (
    DAG("source_files", schedule=None, max_active_runs=2),
    CheckpointedTaskGroup("epoch", storage=STORAGE, source=FileSource(f"file://{GATES.parent}/input", "*.txt")),
):
    reading()

with (
    DAG("source_events", schedule=Asset(name="orders", uri="cairn-test://orders"), max_active_runs=2),
    CheckpointedTaskGroup(
        "epoch", storage=STORAGE, source=AssetEvents(), config=CheckpointConfig(min_pause=timedelta(seconds=15))
    ),
):
    reading()
