"""Operators, the task group and the callback of checkpointed jobs.

Users import the names of `__all__`; the modules below are internal. Each name is imported when it is first used, so
that a DAG file loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from ..checkpoint.documents.attempt import StageSpec as StageSpec
    from ..hooks.session_server import ServerStartError as ServerStartError
    from ..tasks.connect_session import ConnectSession as ConnectSession
    from .doctor import CairnDoctorOperator as CairnDoctorOperator
    from .doctor import UnhealthyError as UnhealthyError
    from .failure.callbacks import restore_latest_checkpoint as restore_latest_checkpoint
    from .failure.retry_policy import CheckpointRetryPolicy as CheckpointRetryPolicy
    from .graph.exchange import Pipelined as Pipelined
    from .graph.stages import UncoveredSparkWarning as UncoveredSparkWarning
    from .group.task_group import CheckpointedTaskGroup as CheckpointedTaskGroup
    from .notifications import CheckpointNotifications as CheckpointNotifications
    from .restore import RestoreLatestCheckpointOperator as RestoreLatestCheckpointOperator
    from .savepoint.operators import DisposeSavepointOperator as DisposeSavepointOperator
    from .savepoint.operators import SavepointFailedError as SavepointFailedError
    from .savepoint.operators import SavepointImpossibleError as SavepointImpossibleError
    from .savepoint.operators import SavepointOperator as SavepointOperator
    from .savepoint.schedule import savepoint_dag as savepoint_dag
    from .savepoint.stop import StopWithSavepointOperator as StopWithSavepointOperator
    from .stage.drivers import DriverUnknownError as DriverUnknownError
    from .stage.operator import SparkEpochOperator as SparkEpochOperator
    from .stage.outcome import StageFailedError as StageFailedError
    from .stage.outcome import StageNotRetryableError as StageNotRetryableError
    from .trigger.last_run import LastRunBlockedError as LastRunBlockedError
    from .trigger.operator import TriggerCheckpointOperator as TriggerCheckpointOperator
    from .trigger.operator import TriggerDeclinedError as TriggerDeclinedError

_WHERE = {
    "CairnDoctorOperator": ".doctor",
    "CheckpointNotifications": ".notifications",
    "CheckpointRetryPolicy": ".failure.retry_policy",
    "CheckpointedTaskGroup": ".group.task_group",
    "ConnectSession": "..tasks.connect_session",
    "DisposeSavepointOperator": ".savepoint.operators",
    "DriverUnknownError": ".stage.drivers",
    "LastRunBlockedError": ".trigger.last_run",
    "Pipelined": ".graph.exchange",
    "RestoreLatestCheckpointOperator": ".restore",
    "SavepointFailedError": ".savepoint.operators",
    "SavepointOperator": ".savepoint.operators",
    "SavepointImpossibleError": ".savepoint.operators",
    "ServerStartError": "..hooks.session_server",
    "SparkEpochOperator": ".stage.operator",
    "StageFailedError": ".stage.outcome",
    "StageNotRetryableError": ".stage.outcome",
    "StageSpec": "..checkpoint.documents.attempt",
    "StopWithSavepointOperator": ".savepoint.stop",
    "TriggerCheckpointOperator": ".trigger.operator",
    "TriggerDeclinedError": ".trigger.operator",
    "UncoveredSparkWarning": ".graph.stages",
    "UnhealthyError": ".doctor",
    "restore_latest_checkpoint": ".failure.callbacks",
    "savepoint_dag": ".savepoint.schedule",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
_RENAMED = {"SavepointUnmakableError": "SavepointImpossibleError", "StageIncurableError": "StageNotRetryableError"}
__getattr__ = import_when_used(__name__, _WHERE, _RENAMED)
