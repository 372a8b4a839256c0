"""The flights pipeline of `bench.epoch --airflow`, by each transport with Cairn and without: the Airflow's DAG file."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_cairn import CheckpointedTaskGroup, SparkEpochOperator

TOLD: dict[str, Any] = json.loads(os.environ["CAIRN_BENCH"])
KEYED = {"parallelism": 2, "max_parallelism": 128}


def with_cairn(name: str, conf: dict[str, str], conn_id: str) -> None:
    """Make the DAG of one transport."""

    def stage(task_id: str, *arguments: str, **options: Any) -> SparkEpochOperator:
        application = f"{TOLD['applications']}/{task_id}.py"
        return SparkEpochOperator(
            task_id=task_id, application=application, application_args=list(arguments), conf=conf, **options
        )

    with (
        DAG(name, schedule=None),
        CheckpointedTaskGroup("epoch", storage=TOLD["storage"], conn_id=conn_id, reads_window=True),
    ):
        clean = stage("clean", TOLD["flights"])
        clean >> [stage("routes", **KEYED), stage("airports", **KEYED)] >> stage("report")


def without(name: str) -> None:
    """Make the DAG of the same four applications without Cairn: clients of Spark Connect, or spark-submits."""

    def stage(task_id: str, *arguments: str) -> BashOperator | SparkSubmitOperator:
        told = json.dumps(
            {
                "folder": f"{TOLD['plain']}/{name}",
                "number": "NUMBER",
                "stage": task_id,
                "start": "{{ data_interval_start }}",
                "end": "{{ data_interval_end }}",
            }
        ).replace('"NUMBER"', "{{ dag_run.conf.number }}")
        words = [told, f"{TOLD['applications']}/{task_id}.py", *arguments]
        if name.endswith("submit"):
            return SparkSubmitOperator(
                task_id=task_id, application=TOLD["application"], application_args=words, conf=TOLD["conf"]
            )
        command = shlex.join([sys.executable, TOLD["application"], *words])
        return BashOperator(
            task_id=task_id, bash_command=f"exec {command}", env={"SPARK_REMOTE": TOLD["remote"]}, append_env=True
        )

    with DAG(name, schedule=None):
        stage("clean", TOLD["flights"]) >> [stage("routes"), stage("airports")] >> stage("report")


for transport in TOLD["transports"]:
    warm = transport == "warm"
    with_cairn(transport, {} if warm else TOLD["conf"], "connect" if warm else "spark_default")
    without(f"plain_{transport}")
