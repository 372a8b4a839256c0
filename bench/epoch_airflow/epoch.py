"""The flights pipeline of `bench.epoch --airflow`, once for each transport: the DAG file of its Airflow."""

from __future__ import annotations

import json
import os
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

TOLD: dict[str, Any] = json.loads(os.environ["CAIRN_BENCH"])
FIRST_DAY = pendulum.datetime(2001, 1, 1, tz="UTC")
KEYED = {"parallelism": 2, "max_parallelism": 128}


def pipeline(name: str, conf: dict[str, str], conn_id: str) -> None:
    """Make the DAG of one transport: one run per day, each an epoch."""

    def stage(task_id: str, *arguments: str, **options: Any) -> SparkEpochOperator:
        application = f"{TOLD['applications']}/{task_id}.py"
        return SparkEpochOperator(
            task_id=task_id, application=application, application_args=list(arguments), conf=conf, **options
        )

    with (
        DAG(
            name,
            schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
            start_date=FIRST_DAY,
            end_date=FIRST_DAY.add(days=TOLD["epochs"] - 1),
            catchup=True,
            max_active_runs=1,
        ),
        CheckpointedTaskGroup("epoch", storage=TOLD["storage"], conn_id=conn_id),
    ):
        clean = stage("clean", TOLD["flights"])
        clean >> [stage("routes", **KEYED), stage("airports", **KEYED)] >> stage("report")


pipeline("warm", {}, "connect")
pipeline("submit", TOLD["conf"], "spark_default")
