"""The operators that have a launcher. Names only: a DAG file's parse imports no provider that it does not use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from airflow.sdk import BaseOperator

from ..checkpoint.errors import InvalidConfigError
from .launcher import Launcher

LAUNCHERS = {
    "airflow.providers.amazon.aws.operators.emr.EmrAddStepsOperator": "emr_steps.EmrStepLauncher",
    "airflow.providers.amazon.aws.operators.emr.EmrContainerOperator": "emr_job_runs.EmrContainerLauncher",
    "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator": "emr_job_runs.EmrServerlessLauncher",
    "airflow.providers.amazon.aws.operators.glue.GlueJobOperator": "glue.GlueLauncher",
    "airflow.providers.cncf.kubernetes.operators.spark_kubernetes.SparkKubernetesOperator": (
        "spark_kubernetes.SparkKubernetesLauncher"
    ),
    "airflow.providers.databricks.operators.databricks.DatabricksRunNowOperator": "databricks.DatabricksJobLauncher",
    "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator": "databricks.DatabricksLauncher",
    "airflow.providers.google.cloud.operators.dataproc.DataprocCreateBatchOperator": "dataproc.DataprocBatchLauncher",
    "airflow.providers.google.cloud.operators.dataproc.DataprocSubmitJobOperator": "dataproc.DataprocJobLauncher",
    "airflow.providers.apache.livy.operators.livy.LivyOperator": "livy.LivyLauncher",
}
"""By operator: module and class of its launcher."""


def launcher_of(kind: type[BaseOperator], operator: BaseOperator) -> Launcher:
    """Return the launcher over an operator.

    Args:
        kind: its class, of a provider or derived from one.
        operator: an instance.
    """
    module, _, name = LAUNCHERS[known_as(kind)].partition(".")
    made: Launcher = getattr(import_module(f".{module}", __package__), name)(operator)
    return made


def launcher_at(operator: str, fields: Mapping[str, Any]) -> Launcher:
    """Return a launcher in a process that has no operator; it finds, looks at and ends drivers.

    Args:
        operator: an operator of `LAUNCHERS`.
        fields: as `Launcher.fields` gave them.
    """
    module, _, name = operator.rpartition(".")
    kind = getattr(import_module(module), name)
    plain = kind.__new__(kind)
    vars(plain).update(fields)
    return launcher_of(kind, plain)


def check_known(kind: object) -> None:
    """Check that an operator's class has a launcher.

    Raises:
        InvalidConfigError: it has none; names those that have.
    """
    if not isinstance(kind, type) or not issubclass(kind, BaseOperator) or not known_as(kind):
        raise InvalidConfigError(
            "epoch_stage has no launcher for this: it takes the class of an operator, one of "
            f"{', '.join(sorted(name.rpartition('.')[2] for name in LAUNCHERS))}, or a class derived from it",
            operator=getattr(kind, "__name__", repr(kind)),
        )


def has_launcher(kind: type) -> bool:
    """Return whether an operator's class can be made a stage."""
    return bool(known_as(kind))


def known_as(kind: type) -> str:
    """Return the operator of `LAUNCHERS` that a class is, or is derived from; empty if there is none."""
    names = (f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__)
    return next((name for name in names if name in LAUNCHERS), "")
