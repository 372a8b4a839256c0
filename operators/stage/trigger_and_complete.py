"""The work of stages' tasks at both ends of an epoch: a first stage triggers the checkpoint, the last completes it.

Separate tasks for that would have to be started first (C1, D3, T9). `graph.topology` finds the first stages.

Races: of several first stages one at a time has the right to trigger, an entry of the head (T10). Airflow runs only one
try of a task, but a zombie of an earlier try may trigger too. Triggering is idempotent (T9), so the two get one
attempt, and the claim that follows decides which of them submits. A process that dies before the attempt is pending
leaves only that right, which another stage takes once Airflow says that the holder no longer runs; a process that dies
after it leaves an attempt, which the next try finds.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskInstanceState, timezone
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk.execution_time.xcom import XCom

from ...checkpoint.acts.trigger import HeldBy, HolderState
from ...checkpoint.answers import BeginAnswer, TriggerFirst
from ...checkpoint.documents.attempt import Owner
from ...checkpoint.documents.entries import TriggeringTask
from ...checkpoint.errors import CheckpointNotReadyError, NotTriggeredError
from ...hooks.task_refs import GIVEN_UP, TaskRef, came_back, is_asked_for
from ...storage.clock import system_sleep
from ...storage.errors import CairnError
from ...storage.probe import ensure_probed
from ...storage.records import dataclass
from ...tasks.dag_runs import deployment
from ...tasks.job_settings import JobSettings, rendered_settings
from ...tasks.stage_states import states_of
from ..graph.topology import trigger_before, triggers_alone
from .overtaken_epoch import COME_BACK_AFTER

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator
    from ...checkpoint.documents.acknowledgement import AckDocument
    from ..graph.declaration import StageOperator, TriggerOperator

log = logging.getLogger("airflow_cairn")

RESULT = "return_value"
"""The XCom key of a task's result."""

LOOK_S = 0.5
"""Delay before the second look at an epoch that another stage's task triggers."""
MAX_LOOK_S = 5.0
"""Maximum delay between two looks: each asks the store and Airflow."""
MAX_DOUBLINGS = 5
"""Number of times that the delay before a task comes back doubles: up to about five minutes."""


def begin_or_trigger(
    begin: Callable[[], BeginAnswer],
    stage: StageOperator,
    context: Context,
    settings: JobSettings,
    coordinator: Coordinator,
    epoch: str,
) -> BeginAnswer:
    """Begin the stage; trigger first if its epoch has no attempt and this stage may trigger.

    A task that was cleared triggers first even if an attempt is pending: that attempt stays, unless the DAG's stages
    have changed. An epoch that was rewound starts anew only after the task was cleared, not in Airflow's retry (R5).

    While another stage's task triggers, this one waits in its process: the other task already runs and needs no slot.

    Args:
        begin: asks for the right to submit.
        stage: the stage's task.
        context: Airflow's task context.
        settings: of the stage.
        coordinator: the job's coordinator.
        epoch: the epoch's name.

    Raises:
        AirflowFailException: neither this task nor the one that it waited for triggered a checkpoint, and no retry
            cures that.
        TaskDeferred: the trigger waits for a place in the queue, in the triggerer.
    """
    trigger = trigger_before(stage)
    if trigger is None:
        return begin()
    cleared = is_asked_for(context["ti"], stage.retries)
    turn = _Turn(trigger, context, settings, coordinator, epoch)
    looks = 0
    while True:
        overtaken = False
        if not (cleared and coordinator.head().pending_of_epoch(epoch) is not None):
            try:
                answer = begin()
            except (NotTriggeredError, CheckpointNotReadyError) as error:
                if error.code == "rewound" and not cleared:
                    raise
            else:
                if not isinstance(answer, TriggerFirst):
                    return answer
                overtaken = True
        # A failure while this task waits is its own failure too, even if a user asked for this try.
        held = turn.take(asked_for=(cleared or overtaken) and not (looks or came_back(context)))
        if held is None:
            turn.trigger()
            return begin()
        _wait_for(held, looks, context)
        looks += 1


@dataclass(frozen=True, slots=True)
class _Turn:
    """One task's turn to trigger."""

    operator: TriggerOperator
    context: Context
    settings: JobSettings
    """Of the task's stage."""
    coordinator: Coordinator
    epoch: str

    def take(self, *, asked_for: bool) -> HeldBy | None:
        """Take the right to trigger, if other tasks could trigger too (semantics T10).

        Raises:
            AirflowFailException, AirflowRescheduleException, CairnError: see `begin_or_trigger`.
        """
        if triggers_alone(self.operator):
            return None
        ti = self.context["ti"]
        try:
            # The right is taken by a conditional write, before the trigger probes the store: probe it here.
            ensure_probed(self.coordinator.files.store, nonce=secrets.token_hex(8))
            return self.coordinator.trigger_right.take(
                self._me(),
                Owner(ti.dag_id, ti.run_id, deployment()),
                lambda task: _state_of(ti, task),
                asked_for=asked_for,
            )
        except CairnError as error:
            self._come_back(error)
            raise

    def trigger(self) -> None:
        """Do the work of the task that triggers, keep its result as that task's XCom, and give the right back.

        Raises:
            AirflowFailException, AirflowRescheduleException, AirflowSkipException, TaskDeferred, CairnError: see
                `begin_or_trigger`.
        """
        ti = self.context["ti"]
        own = self.operator.prepare_for_execution()

        def push(key: str, value: Any) -> None:
            XCom.set(key, value, dag_id=ti.dag_id, task_id=own.task_id, run_id=str(ti.run_id))

        try:
            own.render_template_fields(self.context)
            same = rendered_settings(own) == self.settings
            result = own.trigger(self.context, push, self.coordinator if same else None)
            if own.do_xcom_push:
                push(RESULT, result)
        except (AirflowSkipException, AirflowRescheduleException, TaskDeferred):
            # Any other task may ask in place of this one, and gets the same answer.
            self._give_back()
            raise
        except Exception as error:
            self._give_back(failed=True)
            if isinstance(error, CairnError):
                self._come_back(error)
            raise
        self._give_back()

    def _come_back(self, error: CairnError) -> None:
        """End this try without counting it, if a retry may cure the error and the trigger's retries are not used up.

        Airflow counts all returns of this try alike: after failures, and after waits for a place, for the end of a
        pause or for another task. So a trigger that fails after long waits comes back less often than the trigger's
        `retries`, or not at all. Then the error ends the try, and the stage's own retries follow, each with its own
        count. A count of failures alone would need a place in the store, and the store may be the part that fails.
        """
        if not error.retry_cures:
            raise AirflowFailException(str(error)) from error
        if self.context.get("task_reschedule_count", 0) < (self.operator.retries or 0):
            log.warning("No checkpoint was triggered, and this task tries again: %s", error)
            raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER) from error

    def _give_back(self, *, failed: bool = False) -> None:
        if triggers_alone(self.operator):
            return
        try:
            self.coordinator.trigger_right.give_back(self._me(), failed=failed)
        except CairnError as error:
            log.warning("This task keeps the right to trigger until another stage sees that it has ended: %s", error)

    def _me(self) -> TriggeringTask:
        ti = self.context["ti"]
        map_index = -1 if ti.map_index is None else ti.map_index
        return TriggeringTask(self.epoch, ti.task_id, map_index, claimant=str(ti.id))


def _state_of(ti: RuntimeTaskInstanceProtocol, task: TriggeringTask) -> HolderState:
    ref = TaskRef(task.task_id, task.map_index)
    state = states_of(ti, [ref]).get(ref)
    if state == TaskInstanceState.RUNNING:
        return HolderState.RUNS
    if state in (TaskInstanceState.UP_FOR_RESCHEDULE, TaskInstanceState.UP_FOR_RETRY):
        return HolderState.COMES_BACK
    return HolderState.FAILED if state in GIVEN_UP else HolderState.OTHER


def _wait_for(held: HeldBy, looks: int, context: Context) -> None:
    """Wait a little for the task that triggers, or end as it does.

    Args:
        held: the task that holds the right, and its state in Airflow.
        looks: how often this process has waited for it already; each wait is longer than the one before.
        context: Airflow's task context.
    """
    task = TaskRef(held.task.task_id, held.task.map_index)
    if held.state is HolderState.RUNS:
        if not looks:
            log.info("Task %s triggers the checkpoint; waiting for it", task)
        system_sleep(min(LOOK_S * 1.5**looks, MAX_LOOK_S))
        return
    if held.state is HolderState.COMES_BACK:
        log.info("Task %s could not trigger the checkpoint and comes back; so does this task", task)
        # The holder's retry may be an hour away, and each return starts a process.
        later = COME_BACK_AFTER * 2 ** min(context.get("task_reschedule_count", 0), MAX_DOUBLINGS)
        raise AirflowRescheduleException(timezone.utcnow() + later)
    raise AirflowFailException(
        f"no checkpoint was triggered: {task} was to trigger it and has failed; its log says why. Correct that, then "
        "clear both tasks"
    )


def complete_if_last(
    coordinator: Coordinator, epoch: str, stage: str, *, looked: bool = True, own: AckDocument | None = None
) -> None:
    """Complete the epoch's checkpoint if every stage has acknowledged; errors are only logged.

    The stage has done its part. If the checkpoint is still pending, the task that waits for it completes it, or fails
    with the reason.

    Args:
        coordinator: the job's coordinator.
        epoch: the epoch's name.
        stage: the stage's uid.
        looked: whether the coordinator has read the head since the stage acknowledged.
        own: the stage's acknowledgement, if the caller has read it.
    """
    try:
        completed = coordinator.complete_if_last(epoch, stage, looked=looked, own=own)
    except CairnError as error:
        log.warning("The checkpoint is left to the task that waits for it: %s", error)
        return
    if completed is not None:
        log.info("Checkpoint %d: every stage has acknowledged, the checkpoint is complete", completed.checkpoint)
