"""Jobs that the page shows: one, one whose storage is a template, and a DAG without any."""

from __future__ import annotations

import json
import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
READER = json.loads(os.environ["CAIRN_TEST_READER"])

with (
    DAG("page", schedule=None),
    CheckpointedTaskGroup(
        "epoch",
        reads_window=False,
        storage=STORAGE,
        config=CheckpointConfig(retained=2, savepoint_target=f"{STORAGE}-savepoints-of-page"),
    ),
):
    SparkEpochOperator(task_id="read", **READER)

with (
    DAG("page_templated", schedule=None, params={"lake": STORAGE}),
    CheckpointedTaskGroup("epoch", reads_window=False, storage="{{ params.lake }}"),
):
    SparkEpochOperator(task_id="read", **READER)

with DAG("page_looked_at", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
    SparkEpochOperator(task_id="read", **READER)

# Drivers of this DAG are held and killed by the test.
TRIED = READER | {"retries": 2, "retry_delay": 1}
with DAG("page_watched", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
    SparkEpochOperator(task_id="a", **TRIED) >> SparkEpochOperator(task_id="b", **TRIED)

with DAG("page_plain", schedule=None):
    EmptyOperator(task_id="nothing")
