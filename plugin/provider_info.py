"""What Airflow's providers manager is told about this package, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any

PACKAGE = "airflow-cairn"


def get_provider_info() -> dict[str, Any]:
    """Describe the package in the terms of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": PACKAGE,
        "name": "Cairn",
        "description": "Flink-style checkpoints and failover for Spark pipelines.",
        "integrations": [
            {
                "integration-name": "Cairn",
                "external-doc-url": "https://pypi.org/project/airflow-cairn/",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": "Cairn",
                "python-modules": [
                    "airflow_cairn.operators.restore",
                    "airflow_cairn.operators.spark_epoch",
                    "airflow_cairn.operators.trigger",
                ],
            }
        ],
        "sensors": [{"integration-name": "Cairn", "python-modules": ["airflow_cairn.sensors.checkpoint"]}],
        "triggers": [{"integration-name": "Cairn", "python-modules": ["airflow_cairn.triggers.checkpoint"]}],
        "hooks": [{"integration-name": "Cairn", "python-modules": ["airflow_cairn.hooks.storage"]}],
        "extra-links": ["airflow_cairn.operators.links.CheckpointLink"],
    }
