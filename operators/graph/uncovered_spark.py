"""Spark work in a group that no checkpoint covers: plain tasks that start Spark by themselves.

A plain task may do what it likes, so it is not refused. What it writes is not part of the checkpoint: a failover
neither takes it back nor restores what it read, and a retry writes it once more.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from .stages import is_stage, kind_of

WITHOUT_ITS_NAME = frozenset(
    {
        "LivyOperator",
        "GlueJobOperator",
        "EmrAddStepsOperator",
        "EmrContainerOperator",
        "EmrServerlessStartJobOperator",
        "DataprocSubmitJobOperator",
        "DataprocCreateBatchOperator",
        "DatabricksRunNowOperator",
        "DatabricksSubmitRunOperator",
        "DatabricksNotebookOperator",
        "DatabricksTaskOperator",
    }
)
"""Operators of Airflow's providers that run Spark and do not say so in their names."""


class UncoveredSparkWarning(UserWarning):
    """A task in a `CheckpointedTaskGroup` runs Spark, and no checkpoint covers what it does."""


def warn_of_uncovered_spark(tasks: Iterable[Any], group: str) -> None:
    """Warn of the plain tasks of a group that run Spark."""
    for task in tasks:
        kind = kind_of(task)
        if not is_stage(task) and runs_spark(kind):
            warnings.warn(
                f"{task.task_id}, in the group {group}, is of type {kind.__name__}: it runs Spark, and no checkpoint "
                "covers what it reads and writes. Make it a SparkEpochOperator, or move it before or after the group. "
                "To keep it there, ignore UncoveredSparkWarning",
                UncoveredSparkWarning,
                stacklevel=2,
            )


def runs_spark(kind: type) -> bool:
    """Tell whether an operator runs Spark, as far as its name and those of its bases say."""
    names = {each.__name__ for each in kind.__mro__}
    return any("spark" in name.lower() for name in names) or not names.isdisjoint(WITHOUT_ITS_NAME)
