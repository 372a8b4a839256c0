"""A DAG of one stage for each fault and each way to submit, as the pages on Kubernetes teach it."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.sdk import DAG

from airflow_cairn import CheckpointedTaskGroup, SparkEpochOperator, epoch_stage
from airflow_cairn.operators import NewState, Publish, State

NAMESPACE = "lake"
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])
GATES = os.environ["CAIRN_TEST_GATES"]
APPLICATION = os.environ["CAIRN_TEST_APPLICATION"]
PROGRAM = os.environ["CAIRN_TEST_PROGRAM"]
RETRIES: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=1)}


def arguments_of(way: str) -> list[Any]:
    """Name the places of a program without a block, and where it waits."""
    if not way.endswith("program"):
        return [GATES]
    gate = "{{ dag.dag_id }}/{{ run_id }}/{{ ti.try_number }}/written"
    return [GATES, gate, State("seen", schema="id BIGINT"), NewState("seen"), Publish("all")]


def submit(way: str, name: str, image: str) -> None:
    """Make a stage by `spark-submit` in cluster mode."""
    SparkEpochOperator(
        task_id="count",
        application=PROGRAM if way.endswith("program") else APPLICATION,
        application_args=arguments_of(way),
        track_driver_via_k8s_api=True,
        conf={
            **CONF,
            "spark.kubernetes.container.image": image,
            "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
            "spark.kubernetes.file.upload.path": f"file://{os.environ['CAIRN_TEST_UPLOADS']}",
            "spark.test.fault": name,
        },
        **RETRIES,
    )


def create_application(way: str, name: str, image: str) -> None:
    """Make a stage of a SparkApplication."""
    epoch_stage(SparkKubernetesOperator)(
        task_id="count",
        namespace=NAMESPACE,
        deferrable=way.startswith("deferred"),
        template_spec={
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": name.replace("_", "-")},
            "spec": {
                "type": "Python",
                "mode": "cluster",
                "sparkVersion": "4.3.0",
                "image": image,
                "mainApplicationFile": f"local://{PROGRAM if way.endswith('program') else APPLICATION}",
                "arguments": arguments_of(way),
                "sparkConf": CONF,
                "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
                "executor": {"instances": 1, "cores": 1, "memory": "512m"},
            },
        },
        **RETRIES,
    )


for dag_id in os.environ["CAIRN_TEST_DAGS"].split(","):
    stage_way, _, _ = dag_id.partition("-")
    with (
        DAG(dag_id, schedule=None, max_active_runs=1),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
    ):
        make = submit if stage_way.startswith("submit") else create_application
        make(stage_way, dag_id, f"spark:{dag_id.replace('_', '-')}")
