"""Every shape that a group may have: a pipelined way over a plain task, a branch, a mapped and a skipped stage."""

from __future__ import annotations

import json
import os
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

READER: dict[str, Any] = {**json.loads(os.environ["CAIRN_TEST_READER"]), "retries": 1, "retry_delay": 1}


@task.branch
def choose() -> str:
    """Take one of two branches."""
    return "epoch.europe"


with (
    DAG("shapes", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    clean, europe, asia = (SparkEpochOperator(task_id=name, **READER) for name in ("clean", "europe", "asia"))
    parts = SparkEpochOperator.partial(task_id="parts", **READER).expand(application_args=[["x"], ["y"]])
    report = SparkEpochOperator(task_id="report", trigger_rule="none_failed", **READER)
    clean >> Pipelined() >> EmptyOperator(task_id="check") >> Pipelined() >> europe
    clean >> choose() >> [europe, asia]
    [europe, asia, parts] >> report
