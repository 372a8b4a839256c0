"""Jobs whose stages share a Spark Connect server that Cairn runs: a file, then a function, mapped twice."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator

STORAGE, GATES = os.environ["CAIRN_TEST_STORAGE"], os.environ["CAIRN_TEST_GATES"]
ONE_RESTART = CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=1, delay=timedelta(seconds=1)))
WARM: dict[str, Any] = {"conf": {"spark.sql.shuffle.partitions": "2"}}


@task.spark_epoch(**WARM)
def function(epoch, gates: str, part: int) -> None:
    """Keep one half of the ids that the stage before has written."""
    import importlib
    import sys

    sys.path.append(f"{gates}/../airflow/dags/applications")
    unless_held = importlib.import_module("ids_on_server").unless_held

    rows = unless_held(epoch, gates, epoch.read("file").where(f"id % 2 = {part}"))
    before = epoch.state("seen")
    epoch.snapshot("seen", rows if before is None else before.union(rows), key="id")


for name in ("warm_session", "hung_session", "robbed_session"):
    with (
        DAG(name, schedule=None, max_active_runs=1),
        CheckpointedTaskGroup(
            "epoch",
            reads_window=False,
            storage=STORAGE,
            config=ONE_RESTART,
            session=ConnectSession(conf=json.loads(os.environ["CAIRN_TEST_SPARK_CONF"]), idle=timedelta(hours=1)),
        ),
    ):
        file = SparkEpochOperator(
            task_id="file",
            application=str(Path(__file__).parent / "applications" / "ids_on_server.py"),
            application_args=[GATES],
            **WARM,
        )
        file >> function.partial(gates=GATES).expand(part=[0, 1])
