"""Operators, the task group and the callback of checkpointed jobs.

Users import the names of `__all__`; the modules below are internal. Each name is imported when it is first used, so
that a DAG file loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from ..checkpoint.documents.attempt import StageSpec as StageSpec
    from ..spark.programs.arguments import NewState as NewState
    from ..spark.programs.arguments import Output as Output
    from ..spark.programs.arguments import Publish as Publish
    from ..spark.programs.arguments import Read as Read
    from ..spark.programs.arguments import SliceEnd as SliceEnd
    from ..spark.programs.arguments import SliceFiles as SliceFiles
    from ..spark.programs.arguments import SliceStart as SliceStart
    from ..spark.programs.arguments import SliceValue as SliceValue
    from ..spark.programs.arguments import State as State
    from ..tasks.connect_session import ConnectSession as ConnectSession
    from .failure.callbacks import restore_latest_checkpoint as restore_latest_checkpoint
    from .failure.retry_policy import CheckpointRetryPolicy as CheckpointRetryPolicy
    from .graph.declaration import Pipelined as Pipelined
    from .graph.stages import UncoveredSparkWarning as UncoveredSparkWarning
    from .group.task_group import CheckpointedTaskGroup as CheckpointedTaskGroup
    from .notifications import CheckpointNotifications as CheckpointNotifications
    from .repair import CairnDoctorOperator as CairnDoctorOperator
    from .repair import RestoreLatestCheckpointOperator as RestoreLatestCheckpointOperator
    from .savepoint.operators import DisposeSavepointOperator as DisposeSavepointOperator
    from .savepoint.operators import SavepointOperator as SavepointOperator
    from .savepoint.operators import savepoint_dag as savepoint_dag
    from .savepoint.stop import StopWithSavepointOperator as StopWithSavepointOperator
    from .stage.launched import epoch_stage as epoch_stage
    from .stage.operator import SparkEpochOperator as SparkEpochOperator
    from .stage.outcome import StageFailedError as StageFailedError
    from .stage.outcome import StageNotRetryableError as StageNotRetryableError
    from .trigger.operator import TriggerCheckpointOperator as TriggerCheckpointOperator

_WHERE = {
    **dict.fromkeys(
        ("NewState", "Output", "Publish", "Read", "SliceEnd", "SliceFiles", "SliceStart", "SliceValue", "State"),
        "..spark.programs.arguments",
    ),
    "CairnDoctorOperator": ".repair",
    "CheckpointNotifications": ".notifications",
    "CheckpointRetryPolicy": ".failure.retry_policy",
    "CheckpointedTaskGroup": ".group.task_group",
    "ConnectSession": "..tasks.connect_session",
    "DisposeSavepointOperator": ".savepoint.operators",
    "Pipelined": ".graph.declaration",
    "RestoreLatestCheckpointOperator": ".repair",
    "SavepointOperator": ".savepoint.operators",
    "SparkEpochOperator": ".stage.operator",
    "StageFailedError": ".stage.outcome",
    "StageNotRetryableError": ".stage.outcome",
    "StageSpec": "..checkpoint.documents.attempt",
    "StopWithSavepointOperator": ".savepoint.stop",
    "TriggerCheckpointOperator": ".trigger.operator",
    "UncoveredSparkWarning": ".graph.stages",
    "epoch_stage": ".stage.launched",
    "restore_latest_checkpoint": ".failure.callbacks",
    "savepoint_dag": ".savepoint.operators",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
_RENAMED = {
    "UnhealthyError": "CheckpointError",
    **dict.fromkeys(
        ("SavepointFailedError", "SavepointImpossibleError", "SavepointUnmakableError"), "CheckpointFailedError"
    ),
    **dict.fromkeys(("LastRunBlockedError", "TriggerDeclinedError"), "RefusedError"),
    "StageIncurableError": "StageNotRetryableError",
    **dict.fromkeys(("DriverUnknownError", "ServerStartError"), "UnreachableError"),
}
_ERRORS = dict.fromkeys(_RENAMED.values(), "..checkpoint.errors")
__getattr__ = import_when_used(__name__, _ERRORS | _WHERE, _RENAMED)
