"""The package's description for Airflow's providers manager, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any

PACKAGE = "airflow-cairn"

_TEXT = {"type": ["string", "null"]}
"""Schema of a form's field that may be empty."""
_CONNECTION = {
    "connection-type": "cairn",
    "hook-class-name": "airflow_cairn.hooks.storage.CairnConnectionHook",
    "hook-name": "Cairn storage",
    "ui-field-behaviour": {
        "hidden-fields": ["host", "port", "schema", "extra"],
        "relabeling": {"login": "Access key id", "password": "Secret access key"},
    },
    "conn-fields": {
        "storage": {
            "label": "Storage",
            "description": "URI of the storage that the Test button probes. A DAG names its own.",
            "schema": _TEXT,
        },
        "region_name": {"label": "Region", "schema": _TEXT},
        "endpoint_url": {
            "label": "Endpoint",
            "description": "URL of an S3 server other than AWS.",
            "schema": _TEXT,
        },
        "aws_session_token": {
            "label": "Session token",
            "description": "Of temporary keys.",
            "schema": {"type": ["string", "null"], "format": "password"},
        },
        "request_payer": {
            "label": "Request payer",
            "description": "requester, if this account pays for its requests to the bucket.",
            "schema": _TEXT,
        },
        "server_side_encryption": {
            "label": "Server-side encryption",
            "description": "AES256, aws:kms or aws:kms:dsse, where the bucket's policy asks for it.",
            "schema": _TEXT,
        },
        "sse_kms_key_id": {
            "label": "KMS key",
            "description": "Of aws:kms and aws:kms:dsse.",
            "schema": _TEXT,
        },
        "expected_bucket_owner": {
            "label": "Expected bucket owner",
            "description": "Account of 12 digits; a bucket of another account is refused.",
            "schema": _TEXT,
        },
    },
}
"""`hooks/storage_connections.py` reads the form's fields, under the same names."""

_ICEBERG = {
    "connection-type": "cairn_iceberg",
    "hook-class-name": "airflow_cairn.hooks.table_access.IcebergCatalogHook",
    "hook-name": "Cairn Iceberg catalog",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema"],
        "relabeling": {"host": "URI", "login": "Client id", "password": "Client secret"},
    },
    "conn-fields": {
        "catalog": {
            "label": "Catalog",
            "description": "The first part of the tables' names, such as lake. The Test button asks this catalog.",
            "schema": _TEXT,
        },
        "type": {
            "label": "Type",
            "description": "rest, sql, glue, hive, …; by default as the URI begins. Extra takes more properties.",
            "schema": _TEXT,
        },
        "warehouse": {"label": "Warehouse", "schema": _TEXT},
    },
}
"""`hooks/table_access.py` takes the form's fields for the catalog's properties."""


def get_provider_info() -> dict[str, Any]:
    """Return the package's description, as in Airflow's `provider_info.schema.json`."""
    return {
        "package-name": PACKAGE,
        "name": "Cairn",
        "description": "Flink-style checkpoints and failover for Spark pipelines.",
        # No `external-doc-url`: the documentation comes with the source, in docs/.
        "integrations": [{"integration-name": "Cairn", "tags": ["software"]}],
        "operators": [
            {
                "integration-name": "Cairn",
                "python-modules": [
                    "airflow_cairn.operators.repair",
                    "airflow_cairn.operators.savepoint.operators",
                    "airflow_cairn.operators.savepoint.stop",
                    "airflow_cairn.operators.stage.operator",
                    "airflow_cairn.operators.trigger.operator",
                ],
            }
        ],
        "task-decorators": [
            {"name": "spark_epoch", "class-name": "airflow_cairn.operators.stage.function.spark_epoch_task"}
        ],
        "sensors": [
            {
                "integration-name": "Cairn",
                "python-modules": ["airflow_cairn.sensors.checkpoint", "airflow_cairn.sensors.completed_epoch"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Cairn",
                "python-modules": [
                    "airflow_cairn.triggers.checkpoint",
                    "airflow_cairn.triggers.completed_epoch",
                    "airflow_cairn.triggers.driver",
                    "airflow_cairn.triggers.request",
                    "airflow_cairn.triggers.savepoint",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": "Cairn",
                "python-modules": [
                    "airflow_cairn.hooks.airflow_api",
                    "airflow_cairn.hooks.spark_submit",
                    "airflow_cairn.hooks.storage",
                    "airflow_cairn.hooks.table_access",
                ],
            }
        ],
        "connection-types": [_CONNECTION, _ICEBERG],
        "config": {
            "cairn": {
                "description": "Cairn: checkpoints of Spark pipelines.",
                "options": {
                    "deployment": {
                        "description": (
                            "The name of this Airflow deployment, recorded as the owner of the jobs that its DAGs make "
                            "checkpoints of. By default [api] base_url, unless that is a loopback address. Set it "
                            "where deployments share a storage."
                        ),
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "production",
                        "default": "",
                    }
                },
            }
        },
        "extra-links": [
            "airflow_cairn.tasks.reports.links.CheckpointLink",
            "airflow_cairn.tasks.reports.links.SparkLink",
        ],
    }
