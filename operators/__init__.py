"""Operators, the task group and the callback of checkpointed jobs; each is imported when it is first named."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..checkpoint.model import StageSpec as StageSpec
    from .callbacks import restore_latest_checkpoint as restore_latest_checkpoint
    from .exchange import Pipelined as Pipelined
    from .group import CheckpointedTaskGroup as CheckpointedTaskGroup
    from .restore import RestoreLatestCheckpointOperator as RestoreLatestCheckpointOperator
    from .retry_policy import CheckpointRetryPolicy as CheckpointRetryPolicy
    from .savepoint import DisposeSavepointOperator as DisposeSavepointOperator
    from .savepoint import SavepointOperator as SavepointOperator
    from .savepoint_schedule import savepoint_dag as savepoint_dag
    from .spark_epoch import SparkEpochOperator as SparkEpochOperator
    from .stopping import StopWithSavepointOperator as StopWithSavepointOperator
    from .trigger import TriggerCheckpointOperator as TriggerCheckpointOperator

_WHERE = {
    "CheckpointRetryPolicy": ".retry_policy",
    "CheckpointedTaskGroup": ".group",
    "DisposeSavepointOperator": ".savepoint",
    "Pipelined": ".exchange",
    "RestoreLatestCheckpointOperator": ".restore",
    "SavepointOperator": ".savepoint",
    "SparkEpochOperator": ".spark_epoch",
    "StageSpec": "..checkpoint.model",
    "StopWithSavepointOperator": ".stopping",
    "TriggerCheckpointOperator": ".trigger",
    "restore_latest_checkpoint": ".callbacks",
    "savepoint_dag": ".savepoint_schedule",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name], __name__), name)
