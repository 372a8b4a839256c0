"""Every shape that a group may have: a pipelined path over a plain task, a branch, a mapped and a skipped stage.

And a group whose several first stages have a master hook, which can be held as an application can, at the point `hook`.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_cairn.checkpoint import MasterHook
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


class AtGate(MasterHook):
    """Notes which processes it was asked in, and stands at its gate."""

    name = "gate"
    timeout = timedelta(minutes=5)

    def trigger(self, checkpoint: int, timestamp_ms: int) -> int:
        """Wait until the test lets it go on."""
        gates, where = Path(os.environ["CAIRN_TEST_GATES"]), "first_stages/e1/1/hook"
        reached = gates / "reached" / where
        reached.parent.mkdir(parents=True, exist_ok=True)
        with (gates / "asked").open("a") as noted:
            noted.write(f"{os.getpid()}\n")
        new = reached.with_suffix(".new")
        new.write_text(str(os.getpid()))
        new.rename(reached)  # a test that sees it kills this process
        pause = threading.Event()
        while (gates / "hold" / where).exists():
            pause.wait(0.05)
        return checkpoint


with (
    DAG("first_stages", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup(
        "epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"], master_hooks=[AtGate()]
    ),
):
    one, two = (SparkEpochOperator(task_id=name, **READER) for name in ("one", "two"))
    several = SparkEpochOperator.partial(task_id="several", **READER).expand(application_args=[["x"], ["y"]])
    [one, two, several] >> SparkEpochOperator(task_id="last", **READER)
