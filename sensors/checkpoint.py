"""`CheckpointSensor`: the last task of an epoch; waits for the checkpoint, notifies listeners, cleans up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue, TaskInstanceState, timezone
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
)

from ..checkpoint.answers import EpochCompleted, Failed, Progress, Ready, Waiting
from ..checkpoint.documents import layout
from ..checkpoint.errors import AirflowApiError, CallbackError, CheckpointFailedError
from ..checkpoint.extensions.contracts import CheckpointListener, check_listeners, commit_checks
from ..checkpoint.validation import check_seconds, check_spelling
from ..hooks.storage import CheckpointStorageHook
from ..hooks.task_refs import TaskRef
from ..storage.errors import ForbiddenError, UnavailableError
from ..storage.names import check_storage_uri
from ..storage.port import ObjectStore
from ..tasks.clearing import Where
from ..tasks.dag_runs import start_unless_paused, state_of_run
from ..tasks.extensions import notify_listeners_best_effort, tell_listeners
from ..tasks.job_settings import JobSettings, check_savepoint_target, check_storage_and_job, naming, rendered_settings
from ..tasks.messages import already_completed, skipping
from ..tasks.reports import lineage, notes
from ..tasks.reports.links import CheckpointLink
from ..tasks.stage_states import (
    acknowledge_for,
    check_awaited,
    check_expected,
    start_again,
    states_of,
    was_skipped,
)
from ..triggers.checkpoint import CheckpointTrigger, asks_for_clear, describe, goes_on, is_paused
from ..triggers.polling import why_failed
from . import outcome
from .outcome import RunsAgain

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, BaseOperatorLink, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ..checkpoint import Coordinator
    from ..checkpoint.documents.entries import EndedEntry

log = logging.getLogger("airflow_cairn")


COME_BACK_AFTER = timedelta(seconds=10)
"""Minimum delay before the task comes back; Airflow starts it when the tasks before it have succeeded."""


class CheckpointSensor(BaseSensorOperator):
    """Waits until every stage of this run's epoch has acknowledged, completes the checkpoint, and cleans up after it.

    The checkpoint completes as soon as a task sees the last acknowledgement: the task of that stage, the trigger, or
    this task, whichever is first (semantics D3); this task alone where a listener is asked before (C4). This task also
    notifies listeners and deletes old files.

    Deferrable by default: the task waits in the triggerer and takes no worker slot. With `deferrable=False` the
    sensor's `mode` decides, `poke` or `reschedule`. If the storage cannot be reached, the sensor asks again until
    `timeout`; if it refuses the credentials, for five minutes. The task fails with the reason if the checkpoint was
    declined, expired or aborted and no other attempt is open. As long as
    `CheckpointConfig.tolerable_failed_checkpoints` allows the failure, the sensor opens the epoch's next attempt
    instead, which takes over the results that have not failed, and goes on waiting. Above the limit the job has failed,
    and Airflow does not retry the task (semantics D5).

    Args:
        storage: storage URI (templated).
        job: the job's name (templated); the DAG's id by default.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain.
        deferrable: wait in the triggerer.
        poke_interval: seconds (or a timedelta) between two looks; more than 0.
        listeners: notified how checkpoints ended: the same list of `CheckpointListener`s as for the task that triggers.
            Listeners of installed packages are added.
        savepoint_target: the config's target; this task makes the savepoints that users request on the page.
        table_outlets: for each published table, by name, the asset that gets an event with the number of rows that the
            epoch has written to it.
        retries: tries after the first. Not 0 by default, because Airflow itself can fail a deferred task that did
            nothing wrong: if the trigger is quick, it mistakes the end of the deferring process for the task's own end
            (apache/airflow issues 67287 and 72716). The next try asks the store and goes on.
        retry_delay: seconds (or a timedelta) between two tries.
        **kwargs: arguments of every sensor: `timeout`, `mode`, …. With `soft_fail` or `never_fail` a run may succeed
            although its epoch is incomplete; a `CheckpointedTaskGroup` never sets them. The event of each `Asset` in
            `outlets` says which checkpoint completed.

    Raises:
        InvalidConfigError: no storage is given, the interval is not positive, or `listeners` or `table_outlets` have
            other contents.
        InvalidKeyError: the job's name, or a table's, is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job")
    operator_extra_links: Collection[BaseOperatorLink] = (CheckpointLink(),)
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        aws_conn_id: str | None = None,
        deferrable: bool = True,
        poke_interval: timedelta | float = 5.0,
        listeners: Sequence[CheckpointListener] | None = None,
        savepoint_target: str | None = None,
        table_outlets: Mapping[str, Asset] | None = None,
        retries: int = 2,
        retry_delay: timedelta | float = 5.0,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        poke_interval = check_seconds("poke_interval", poke_interval, task=kwargs.get("task_id"))
        super().__init__(poke_interval=poke_interval, retries=retries, retry_delay=retry_delay, **kwargs)
        self.storage = storage
        self.job = job or (self.dag.dag_id if self.has_dag() else None)
        self.aws_conn_id = aws_conn_id
        self.deferrable = deferrable
        with naming(task=self.task_id):
            self.listeners = check_listeners(listeners)
            self._table_outlets = outcome.check_table_outlets(table_outlets, self.outlets)
        self.add_outlets(self._table_outlets.values())
        check_storage_and_job(self.storage, self.job, task=self.task_id)
        check_savepoint_target(savepoint_target, self.storage, self.job, task=self.task_id)
        self.savepoint_target = None if savepoint_target is None else check_storage_uri(savepoint_target)
        self._stage_tasks: dict[str, TaskRef] = {}
        self._trigger_task: Callable[[], TaskRef] | None = None
        self._where_of: Callable[[str], Where] | None = None
        self._airflow_api_conn_id: str | None = None
        self.runs_again: RunsAgain | None = None
        """The group's tasks, which run again if another run has overtaken the epoch; None outside a group."""
        self._asked: int | None = None
        self._ended_with: tuple[Coordinator, EndedEntry | None] | None = None

    def watch(
        self,
        trigger: Callable[[], TaskRef],
        stages: Mapping[str, TaskRef],
        where_of: Callable[[str], Where] | None = None,
        airflow_api_conn_id: str | None = None,
    ) -> None:
        """Watch the tasks of the stages and the trigger: acknowledge for skipped stages, and skip with the trigger.

        It is an error if tasks have ended without an acknowledgement.

        Args:
            trigger: returns the task that triggers the checkpoint, once the whole DAG file has been parsed.
            stages: the tasks of the stages, by uid; all of them have ended when this task begins.
            where_of: returns all tasks that run again with the stages of a run, by the run's id.
            airflow_api_conn_id: the connection to Airflow's API; None: a user clears tasks that must run again.
        """
        self._trigger_task = trigger
        self._stage_tasks = dict(stages)
        self._where_of = where_of
        self._airflow_api_conn_id = airflow_api_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait until the checkpoint has completed, and complete it if necessary.

        Returns:
            Job, checkpoint, epoch, acknowledgements, bytes, the milliseconds from trigger to completion, and, if any,
            the stages that were left out and the names of the published tables.

        Raises:
            CheckpointFailedError: the checkpoint ended without completing; the message has the reason.
            AirflowFailException: the job failed: too many checkpoints failed, or a try failed and no other follows
                (semantics F4); the message names the root cause. Or all tasks without an acknowledgement have ended,
                because a user marked them or because they failed without a report; the message names them.
            InvalidConfigError: the epoch has no known checkpoint: none was triggered, or it was forgotten.
            CallbackError: the checkpoint is complete, and a listener failed; the next try notifies it again.
            AirflowSkipException: the task that triggers was skipped.
            AirflowSensorTimeout: the timeout expired.
        """
        if not self.deferrable:
            result: dict[str, Any] = super().execute(context)
            return result
        deadline = timezone.utcnow() + timedelta(seconds=self.timeout)
        with outcome.skipping_as_told(self):
            return self._finish_or_defer(context, deadline)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once (modes `poke` and `reschedule`); complete the checkpoint if all stages have acknowledged."""
        with outcome.skipping_as_told(self):
            result = self._result(rendered_settings(self), context)
        return PokeReturnValue(is_done=result is not None, xcom_value=result)

    def execute_complete(self, context: Context, event: dict[str, Any], deadline: str) -> dict[str, Any]:
        """Go on after the trigger has seen the end of the wait.

        Args:
            context: Airflow's task context.
            event: the trigger's event; the store is asked again, because things may have changed.
            deadline: when the sensor's timeout expires, ISO 8601.

        Raises:
            CheckpointFailedError: the checkpoint ended without completing, or the trigger could not go on.
            AirflowFailException: the job failed, because too many checkpoints failed.
            AirflowSkipException: one of these errors occurred, and `never_fail` or `soft_fail` is set.
            AirflowSensorTimeout: the timeout expired.
        """
        with outcome.skipping_as_told(self):
            why = why_failed(event, "the checkpoint")
            if why is not None:
                raise CheckpointFailedError(why, job=self.job, kind=event.get("kind"))
            return self._finish_or_defer(context, datetime.fromisoformat(deadline))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a wait; see `execute_complete`.

        Raises:
            AirflowRescheduleException: the task comes back later. Airflow's own sensor would treat that as a failure,
                and skip on `soft_fail`.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSkipException as error:
            if isinstance(error.__cause__, AirflowRescheduleException):
                raise error.__cause__ from None
            raise

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Tell OpenLineage which job this is."""
        return lineage.of_start(self.storage, self.job)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - as it is called
        """Tell OpenLineage which tables the checkpoint published; only the job if none completed."""
        coordinator, entry = self._ended_with or (None, None)
        if coordinator is None or entry is None:
            return self.get_openlineage_facets_on_start()
        return lineage.of_completed(rendered_settings(self).storage, coordinator, entry)

    def _finish_or_defer(self, context: Context, deadline: datetime) -> dict[str, Any]:
        settings = rendered_settings(self)
        result = self._result(settings, context)
        if result is not None:
            return result
        left = deadline - timezone.utcnow()
        if left <= timedelta(0):
            raise AirflowSensorTimeout(f"the checkpoint was not complete within {self.timeout:g} seconds")
        self.defer(
            trigger=CheckpointTrigger(
                storage=str(settings.storage),
                job=settings.job,
                epoch=layout.epoch_name(context["ti"].run_id),
                aws_conn_id=settings.aws_conn_id,
                poll_interval=self.poke_interval,
                asked=self._asked,
                rechecks=self._where_of is not None,
                completes=not commit_checks(self.listeners),
            ),
            method_name="execute_complete",
            kwargs={"deadline": deadline.isoformat()},
            timeout=left,
        )
        raise AssertionError("defer() does not return")

    def _result(self, settings: JobSettings, context: Context) -> dict[str, Any] | None:
        """Look once; once the epoch is completed, return the result, and fill in the events of the task's assets."""
        result = self._look(settings, context["ti"])
        if result is not None:
            coordinator, _ = self._ended_with or (None, None)
            rows = outcome.rows_by_table(coordinator if self.outlets else None, result)
            outcome.describe(self.outlets, self._table_outlets, context, settings, result, rows)
        return result

    def _look(self, settings: JobSettings, ti: RuntimeTaskInstanceProtocol) -> dict[str, Any] | None:
        """Look once; return the result once the epoch is completed, by this task or by another."""
        try:
            with settings.naming_connection():
                return self._look_at_store(settings, ti)
        except CheckpointFailedError as error:
            if error.retry_cures:
                raise
            # semantics D5: another try would find the same. A retry or a clear of a stage starts the job again.
            raise AirflowFailException(str(error)) from error

    def _look_at_store(self, settings: JobSettings, ti: RuntimeTaskInstanceProtocol) -> dict[str, Any] | None:
        coordinator = settings.coordinator(waits=not self.deferrable)
        run_id = ti.run_id
        epoch = layout.epoch_name(run_id)
        try:
            progress = self._go_on(coordinator, epoch, ti)
            if is_paused(progress) and start_unless_paused(coordinator, ti):
                progress = self._go_on(coordinator, epoch, ti)
            if isinstance(progress, Failed):
                self._skip_with_trigger(coordinator, progress, ti)
            if isinstance(progress, Waiting) and self._where_of is not None:
                check_expected(coordinator.job, epoch, progress, self._where_of(str(run_id)))
            self._clear_restarted(coordinator, progress, ti)
            waits_for = {uid: task for uid, task in self._stage_tasks.items() if uid in _missing(progress)}
            if waits_for:
                states = states_of(ti, waits_for.values())
                acknowledge_for(coordinator, epoch, ti, waits_for, states)
                before, progress = progress, coordinator.go_on(epoch)
                self._start_again(coordinator, epoch, progress, states)

                def why(stage: str) -> str:
                    return coordinator.why_unacknowledged(epoch, stage)

                check_awaited(coordinator.job, epoch, before, progress, waits_for, states, why)
            if isinstance(progress, Ready):
                progress = self._complete(coordinator, epoch, progress.checkpoint, ti)
            if isinstance(progress, EpochCompleted):
                return self._completed(coordinator, settings, progress, ti)
        except UnavailableError as error:
            log.warning("The storage cannot be reached, asking again: %s", error)
            return None
        except ForbiddenError as error:
            if not self.deferrable:
                raise  # opening the store has already waited for it
            log.warning("The storage refuses the credentials, asking again: %s", error)
            return None
        if goes_on(progress):
            log.info("%s", describe(progress))
            return None
        if isinstance(progress, Ready):
            return None
        return self._ended(coordinator, settings, progress, ti)

    def _complete(
        self, coordinator: Coordinator, epoch: str, checkpoint: int, ti: RuntimeTaskInstanceProtocol
    ) -> Progress:
        """Complete the checkpoint, or have the stages run again whose changes a listener could not commit (C4)."""
        checks = commit_checks(self.listeners)
        again = coordinator.run_again(epoch, checks) if checks else ()
        if not again:
            with suppress(CheckpointFailedError):  # the checkpoint has ended since; another attempt may be open
                coordinator.complete(checkpoint)
            return coordinator.go_on(epoch)
        log.warning("Checkpoint %d: %s cannot be committed, so it runs again", checkpoint, ", ".join(again))
        progress = coordinator.go_on(epoch)
        self._clear_restarted(coordinator, progress, ti)
        return progress

    def _go_on(self, coordinator: Coordinator, epoch: str, ti: RuntimeTaskInstanceProtocol) -> Progress:
        return coordinator.go_on(epoch, lambda owner: state_of_run(ti, owner))

    def _skip_with_trigger(self, coordinator: Coordinator, progress: Failed, ti: RuntimeTaskInstanceProtocol) -> None:
        """Skip this task if the run was skipped, for example because another run has read its input (semantics T8).

        In that case the end of its last attempt says nothing about this run. If a stage's task triggers, the author may
        have skipped only that stage, and another stage have triggered.
        """
        if self._trigger_task is None:
            return
        trigger = self._trigger_task()
        stages = set(self._where_of(str(ti.run_id)).tasks.values()) if self._where_of is not None else set()
        skipped = {trigger} | (stages if progress.checkpoint and trigger in stages else set())
        states = states_of(ti, skipped)
        if all(states.get(task) == TaskInstanceState.SKIPPED for task in skipped):
            if progress.checkpoint:
                self._note(coordinator, ti, notes.skipped(str(trigger)))
            raise skipping(
                f"the task that triggers the checkpoint was skipped, so there is none; the log of {trigger} says why"
            )

    def _clear_restarted(self, coordinator: Coordinator, progress: Progress, ti: RuntimeTaskInstanceProtocol) -> None:
        """Clear the tasks whose output was replaced, unless they already run again (semantics F5, C2)."""
        due = progress.restarted if isinstance(progress, Waiting) else asks_for_clear(progress)
        if not due or not isinstance(progress, Waiting | Failed):
            return
        self._asked = progress.checkpoint
        if isinstance(progress, Failed):
            if self.runs_again is not None:
                try:
                    self.runs_again.trigger_again(ti, progress)
                except AirflowApiError as error:
                    self._come_back(error)
            return
        if self._where_of is None:
            return
        tasks = self._where_of(str(ti.run_id)).tasks
        states = states_of(ti, [tasks[each.stage] for each in progress.restarted if each.stage in tasks])
        self._start_again(coordinator, layout.epoch_name(ti.run_id), progress, states)

    def _start_again(
        self, coordinator: Coordinator, epoch: str, progress: Progress, states: Mapping[TaskRef, str]
    ) -> None:
        """Clear tasks that have succeeded although their stages have not acknowledged (semantics F5)."""
        try:
            cleared = start_again(coordinator, epoch, progress, states, self._where_of, self._airflow_api_conn_id)
        except AirflowApiError as error:
            self._come_back(error)
        if cleared and self._stage_tasks:
            raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER)

    def _come_back(self, error: AirflowApiError) -> NoReturn:
        log.warning("What has to run again cannot be cleared now, asking again: %s", error)
        raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER) from error

    def _completed(
        self,
        coordinator: Coordinator,
        settings: JobSettings,
        completed: EpochCompleted,
        ti: RuntimeTaskInstanceProtocol,
    ) -> dict[str, Any]:
        """Report the checkpoint, notify the listeners and clean up, even if another process completed it."""
        if ti.try_number > 1 and self._trigger_task is not None and was_skipped(ti, self._trigger_task()):
            # Not skipped, unlike the stages: tasks after the group need the checkpoint, and it exists.
            log.info(
                "This task is not skipped, because tasks after it need the checkpoint: %s",
                already_completed(coordinator, settings.storage, completed),
            )
        result = outcome.result_of(coordinator, completed, ti.run_id)
        try:
            tell_listeners(coordinator, self.listeners)
        except CallbackError as error:
            self._note(coordinator, ti, notes.owed(completed.checkpoint, error))
            raise
        finally:
            outcome.clean(coordinator)
        head = coordinator.known_head()
        entry, latest = head.ended_by_id(completed.checkpoint), head.latest_completed()
        self._ended_with = (coordinator, entry)
        if entry is not None:
            self._note(coordinator, ti, notes.completed(entry, latest.read.gaps if latest else ()))

        def opened(uri: str) -> ObjectStore:
            return CheckpointStorageHook(uri, settings.aws_conn_id).open_store()

        held = outcome.make_asked_savepoints(coordinator, self.savepoint_target, opened)
        if held is not None:
            now = timezone.utcnow()
            raise AirflowRescheduleException(now + outcome.again_after(held, round(now.timestamp() * 1000)))
        return result

    def _ended(
        self, coordinator: Coordinator, settings: JobSettings, progress: Progress, ti: RuntimeTaskInstanceProtocol
    ) -> NoReturn:
        notify_listeners_best_effort(coordinator, self.listeners)
        assert isinstance(progress, Failed)
        if progress.checkpoint != 0:
            next_step = outcome.next_step_of(coordinator, settings.storage, progress)
            self._note(coordinator, ti, notes.failed(progress, next_step))
        raise outcome.failure_of(coordinator, settings.storage, progress, ti.run_id)

    def _note(self, coordinator: Coordinator, ti: RuntimeTaskInstanceProtocol, said: str) -> None:
        """Write a note on the run; outside a group there is no connection for that."""
        notes.write(self._airflow_api_conn_id, ti.dag_id, str(ti.run_id), coordinator.job, said)


def _missing(progress: Progress) -> tuple[str, ...]:
    return progress.missing if isinstance(progress, Waiting) else ()
