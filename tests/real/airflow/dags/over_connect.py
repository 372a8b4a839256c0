"""One job of three stages: the first by spark-submit, then a file and a mapped function on a Spark Connect server."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE, GATES = os.environ["CAIRN_TEST_STORAGE"], os.environ["CAIRN_TEST_GATES"]
# A new server takes as long as the machine needs; the tries until then are no failure of the test.
ON_SERVER: dict[str, Any] = {
    "conn_id": "over_connect",
    "conf": {"spark.sql.shuffle.partitions": "2"},
    "retries": 30,
    "retry_delay": timedelta(seconds=1),
}


@task.spark_epoch(**ON_SERVER)
def function(epoch, gates: str, run: str, part: int) -> None:
    """Keep one half of the ids that the stage before has written."""
    import importlib
    import sys

    sys.path.append(f"{gates}/../airflow/dags/applications")
    unless_held = importlib.import_module("ids_on_server").unless_held

    print(f"part {part} of {run}")
    rows = unless_held(epoch, gates, epoch.read("file").where(f"id % 2 = {part}"))
    before = epoch.state("seen")
    epoch.snapshot("seen", rows if before is None else before.union(rows), key="id")


with (
    DAG("over_connect", schedule=None, max_active_runs=1),
    CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE),
):
    submitted = SparkEpochOperator(task_id="submitted", **json.loads(os.environ["CAIRN_TEST_READER"]))
    file = SparkEpochOperator(
        task_id="file", application="applications/ids_on_server.py", application_args=[GATES], **ON_SERVER
    )
    submitted >> file >> function.partial(gates=GATES, run="{{ run_id }}").expand(part=[0, 1])
