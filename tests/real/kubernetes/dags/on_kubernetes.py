"""A DAG of one stage for each fault and each way to submit, as the pages on Kubernetes teach it."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.sdk import DAG

from airflow_cairn import CheckpointedTaskGroup, SparkEpochOperator, epoch_stage

NAMESPACE = "lake"
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])
GATES = os.environ["CAIRN_TEST_GATES"]
APPLICATION = os.environ["CAIRN_TEST_APPLICATION"]
RETRIES: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=1)}


def image_of(way: str, fault: str) -> str:
    return f"spark:{way}-{fault.replace('_', '-')}"


for fault in os.environ["CAIRN_TEST_FAULTS"].split(","):
    with (
        DAG(f"submit_{fault}", schedule=None, max_active_runs=1),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
    ):
        SparkEpochOperator(
            task_id="count",
            application=APPLICATION,
            application_args=[GATES],
            track_driver_via_k8s_api=True,
            conf={
                **CONF,
                "spark.kubernetes.container.image": image_of("submit", fault),
                "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
                "spark.kubernetes.file.upload.path": f"file://{os.environ['CAIRN_TEST_UPLOADS']}",
                "spark.test.fault": fault,
            },
            **RETRIES,
        )
    with (
        DAG(f"operator_{fault}", schedule=None, max_active_runs=1),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=os.environ["CAIRN_TEST_STORAGE"]),
    ):
        epoch_stage(SparkKubernetesOperator)(
            task_id="count",
            namespace=NAMESPACE,
            template_spec={
                "apiVersion": "sparkoperator.k8s.io/v1beta2",
                "kind": "SparkApplication",
                "metadata": {"name": f"count-{fault.replace('_', '-')}"},
                "spec": {
                    "type": "Python",
                    "mode": "cluster",
                    "sparkVersion": "4.3.0",
                    "image": image_of("operator", fault),
                    "mainApplicationFile": f"local://{APPLICATION}",
                    "arguments": [GATES],
                    "sparkConf": CONF,
                    "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
                    "executor": {"instances": 1, "cores": 1, "memory": "512m"},
                },
            },
            **RETRIES,
        )
