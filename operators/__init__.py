"""Operators, the task group and the callback of checkpointed jobs; each is imported when it is first named."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..checkpoint.documents.attempt import StageSpec as StageSpec
    from .failure.callbacks import restore_latest_checkpoint as restore_latest_checkpoint
    from .failure.retry_policy import CheckpointRetryPolicy as CheckpointRetryPolicy
    from .graph.exchange import Pipelined as Pipelined
    from .group.task_group import CheckpointedTaskGroup as CheckpointedTaskGroup
    from .restore import RestoreLatestCheckpointOperator as RestoreLatestCheckpointOperator
    from .savepoint.operators import DisposeSavepointOperator as DisposeSavepointOperator
    from .savepoint.operators import SavepointOperator as SavepointOperator
    from .savepoint.schedule import savepoint_dag as savepoint_dag
    from .savepoint.stop import StopWithSavepointOperator as StopWithSavepointOperator
    from .stage.operator import SparkEpochOperator as SparkEpochOperator
    from .trigger.operator import TriggerCheckpointOperator as TriggerCheckpointOperator

_WHERE = {
    "CheckpointRetryPolicy": ".failure.retry_policy",
    "CheckpointedTaskGroup": ".group.task_group",
    "DisposeSavepointOperator": ".savepoint.operators",
    "Pipelined": ".graph.exchange",
    "RestoreLatestCheckpointOperator": ".restore",
    "SavepointOperator": ".savepoint.operators",
    "SparkEpochOperator": ".stage.operator",
    "StageSpec": "..checkpoint.documents.attempt",
    "StopWithSavepointOperator": ".savepoint.stop",
    "TriggerCheckpointOperator": ".trigger.operator",
    "restore_latest_checkpoint": ".failure.callbacks",
    "savepoint_dag": ".savepoint.schedule",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name], __name__), name)
