"""What stages' tasks do at both ends of an epoch: the first stage triggers the checkpoint, the last one completes it.

Other tasks for that would have to be started first (C1, D3, T9). Which stage is the first one: `graph.first_stage`.

Who can race: Airflow may run one try of the task only, and a zombie of an earlier one may trigger too. Triggering is
idempotent (T9), so the two get one attempt, and the claim that follows decides which of them submits. A process that
dies before the attempt is pending leaves nothing; one that dies after it leaves an attempt that the next try finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException
from airflow.sdk.execution_time.xcom import XCom

from ...checkpoint.answers import BeginAnswer, TriggerFirst
from ...checkpoint.errors import CheckpointNotReadyError, NotTriggeredError, RewoundError
from ...storage.errors import CairnError
from ..graph.first_stage import trigger_before
from .overtaken_epoch import COME_BACK_AFTER
from .tries import is_asked_for

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ..graph.declaration import StageOperator, TriggerOperator

log = logging.getLogger(__name__)

RESULT = "return_value"
"""The key of a task's result."""


def begin_or_trigger(
    begin: Callable[[], BeginAnswer], stage: StageOperator, context: Context, is_pending: Callable[[], bool]
) -> BeginAnswer:
    """Begin the stage, and trigger first where its epoch has no attempt and this stage is the one to trigger.

    Where the task was cleared it triggers first also if an attempt is pending: that one stays, unless the DAG's stages
    have changed. An epoch that was rewound starts anew only where the task was cleared, not in Airflow's retry (R5).

    Args:
        begin: asks for the right to submit.
        stage: the stage's task.
        context: Airflow's.
        is_pending: tells whether an attempt of the epoch is.

    Raises:
        AirflowFailException: no checkpoint was triggered, and no retry cures that.
        AirflowRescheduleException: the trigger has to wait and is not `deferrable`, the DAG is paused, or it failed of
            what a retry may cure: then this task comes back, as often as the task that triggers would be retried.
        TaskDeferred: the trigger waits for a place, in the triggerer.
        AirflowSkipException: there is nothing to read in this epoch.
        CairnError: of the trigger, once it has failed too often; or as of `begin`.
    """
    trigger = trigger_before(stage)
    if trigger is None:
        return begin()
    cleared = is_asked_for(context["ti"], stage.retries)
    if not (cleared and is_pending()):
        try:
            answer = begin()
        except (NotTriggeredError, CheckpointNotReadyError) as error:
            if isinstance(error, RewoundError) and not cleared:
                raise
        else:
            if not isinstance(answer, TriggerFirst):
                return answer
    _trigger(trigger, context)
    return begin()


def _trigger(trigger: TriggerOperator, context: Context) -> None:
    """Do what the task that triggers would do, and keep its result as that task's XCom."""
    ti = context["ti"]
    own = trigger.prepare_for_execution()
    own.render_template_fields(context)

    def push(key: str, value: Any) -> None:
        XCom.set(key, value, dag_id=ti.dag_id, task_id=own.task_id, run_id=str(ti.run_id))

    try:
        result = own.trigger(context, push)
    except CairnError as error:
        if not error.retry_cures:
            raise AirflowFailException(str(error)) from error
        if context.get("task_reschedule_count", 0) >= (own.retries or 0):
            raise
        log.warning("%s; trying again", error)
        raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER) from error
    if own.do_xcom_push:
        push(RESULT, result)


def complete_if_last(coordinator: Coordinator, epoch: str, stage: str) -> None:
    """Complete the epoch's checkpoint if every stage has acknowledged; what goes wrong is only logged.

    The stage has done its part. The task that waits for the checkpoint completes it, if it is still pending, and fails
    with the reason if it cannot complete.
    """
    try:
        completed = coordinator.complete_if_last(epoch, stage)
    except CairnError as error:
        log.warning("the checkpoint is left to the task that waits for it: %s", error)
        return
    if completed is not None:
        log.info("checkpoint %d: every stage has acknowledged, the checkpoint is complete", completed.checkpoint)
