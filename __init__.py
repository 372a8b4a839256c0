"""Flink-style checkpoints and failover for Spark pipelines in Apache Airflow.

Users import the names of `__all__`: what most DAG files and applications need. The packages below have the rest, and
the modules in them are internal. A name is imported when it is first used: a DAG file loads no PySpark, an application
no Airflow.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036 - the cluster's Python may be older, and finds this file in the zip
    raise ImportError(
        f"airflow_cairn needs Python 3.10 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}. "
        "Set spark.pyspark.python to a newer one for the driver and the executors"
    )

if TYPE_CHECKING:
    from .checkpoint.config import CheckpointConfig as CheckpointConfig
    from .checkpoint.config import ExponentialDelayRestart as ExponentialDelayRestart
    from .checkpoint.config import FailureRateRestart as FailureRateRestart
    from .checkpoint.config import FixedDelayRestart as FixedDelayRestart
    from .checkpoint.config import NoRestart as NoRestart
    from .checkpoint.config import RegionalCheckpoints as RegionalCheckpoints
    from .checkpoint.sources.files import FileSource as FileSource
    from .checkpoint.sources.values import AssetEvents as AssetEvents
    from .checkpoint.sources.values import DataInterval as DataInterval
    from .checkpoint.sources.values import Offsets as Offsets
    from .operators.graph.declaration import Pipelined as Pipelined
    from .operators.group.task_group import CheckpointedTaskGroup as CheckpointedTaskGroup
    from .operators.notifications import CheckpointNotifications as CheckpointNotifications
    from .operators.repair import CairnDoctorOperator as CairnDoctorOperator
    from .operators.savepoint.operators import DisposeSavepointOperator as DisposeSavepointOperator
    from .operators.savepoint.operators import SavepointOperator as SavepointOperator
    from .operators.savepoint.operators import savepoint_dag as savepoint_dag
    from .operators.savepoint.stop import StopWithSavepointOperator as StopWithSavepointOperator
    from .operators.stage.launched import epoch_stage as epoch_stage
    from .operators.stage.operator import SparkEpochOperator as SparkEpochOperator
    from .plugin.timetable import CheckpointTimetable as CheckpointTimetable
    from .sensors.completed_epoch import CompletedEpochSensor as CompletedEpochSensor
    from .spark.data_checks import DataCheckError as DataCheckError
    from .spark.epoch import Epoch as Epoch
    from .spark.event_time.ttl import StateTtl as StateTtl
    from .spark.tables import state as state
    from .spark.tables import table as table
    from .tables.declared import DeltaTable as DeltaTable
    from .tables.declared import IcebergTable as IcebergTable
    from .tables.declared import PostgresTable as PostgresTable
    from .tasks.connect_session import ConnectSession as ConnectSession
    from .tasks.extensions import Mirror as Mirror

__version__ = "0.2.0"


def import_when_used(
    package: str, where: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Make a package's `__getattr__`, so that who imports one of its names, or a module below it, loads only that.

    Args:
        package: its dotted name.
        where: by public name, the module that defines it, relative to the package.
        renamed: by name of an earlier release, the public name that it has now; its use warns.
    """

    def get(name: str) -> Any:
        now = (renamed or {}).get(name, name)
        if now != name:
            of_error = ", and its `code` says what happened" if now.endswith("Error") else ""
            warnings.warn(
                f"{package}.{name} is called {now} now{of_error}; the old name goes with the next release",
                DeprecationWarning,
                stacklevel=2,
            )
        if now not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(where[now], package), now)

    return get


_WHERE = {
    "AssetEvents": ".checkpoint.sources.values",
    "CairnDoctorOperator": ".operators.repair",
    "CheckpointConfig": ".checkpoint.config",
    "CheckpointNotifications": ".operators.notifications",
    "CheckpointTimetable": ".plugin.timetable",
    "CheckpointedTaskGroup": ".operators.group.task_group",
    "CompletedEpochSensor": ".sensors.completed_epoch",
    "ConnectSession": ".tasks.connect_session",
    "DataCheckError": ".spark.data_checks",
    "DataInterval": ".checkpoint.sources.values",
    "DeltaTable": ".tables.declared",
    "DisposeSavepointOperator": ".operators.savepoint.operators",
    "Epoch": ".spark.epoch",
    "ExponentialDelayRestart": ".checkpoint.config",
    "FailureRateRestart": ".checkpoint.config",
    "FileSource": ".checkpoint.sources.files",
    "FixedDelayRestart": ".checkpoint.config",
    "Mirror": ".tasks.extensions",
    "NoRestart": ".checkpoint.config",
    "Offsets": ".checkpoint.sources.values",
    "IcebergTable": ".tables.declared",
    "Pipelined": ".operators.graph.declaration",
    "PostgresTable": ".tables.declared",
    "RegionalCheckpoints": ".checkpoint.config",
    "SavepointOperator": ".operators.savepoint.operators",
    "SparkEpochOperator": ".operators.stage.operator",
    "StateTtl": ".spark.event_time.ttl",
    "StopWithSavepointOperator": ".operators.savepoint.stop",
    "epoch_stage": ".operators.stage.launched",
    "savepoint_dag": ".operators.savepoint.operators",
    "state": ".spark.tables",
    "table": ".spark.tables",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
__getattr__ = import_when_used(__name__, _WHERE)
