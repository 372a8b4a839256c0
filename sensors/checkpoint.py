"""`CheckpointSensor`: the last task of an epoch; waits for the checkpoint, notifies listeners, cleans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue, timezone
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
)

from ..checkpoint.answers import EpochCompleted, Failed, Progress, Ready, Waiting
from ..checkpoint.documents import layout
from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError, JobFailedError
from ..checkpoint.extensions.listeners import CheckpointListener, check_listeners
from ..checkpoint.validation import check_spelling
from ..hooks.airflow_api import AirflowApiError
from ..hooks.clear_body import TaskRef
from ..hooks.storage import CheckpointStorageHook
from ..storage.errors import CairnError, UnavailableError
from ..storage.port import ObjectStore
from ..storage.uris import check_storage_uri
from ..tasks.clearing import Where
from ..tasks.dag_pause import start_unless_paused
from ..tasks.dag_runs import state_of
from ..tasks.job_settings import JobSettings, check_savepoint_target, check_storage_and_job, naming, rendered_settings
from ..tasks.listeners import tell, tell_if_possible
from ..tasks.messages import already_completed
from ..tasks.reports import lineage, notes
from ..tasks.reports.checkpoint_link import CheckpointLink
from ..tasks.stage_states import (
    SKIPPED,
    NobodyAcknowledgesError,
    acknowledge_for,
    check_awaited,
    check_expected,
    states_of,
    was_skipped,
)
from ..tasks.unstarted_stages import start_again
from ..triggers.checkpoint import CheckpointTrigger, asks_for_clear, describe, goes_on, is_paused
from ..triggers.polling import why_failed
from . import asked_savepoints, asset_events, outcome
from .runs_again import RunsAgain

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, BaseOperatorLink, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ..checkpoint import Coordinator
    from ..checkpoint.documents.entries import EndedEntry

log = logging.getLogger("airflow_cairn")


COME_BACK_AFTER = timedelta(seconds=10)
"""After this long at the earliest the task comes back; Airflow starts it when the tasks before it have succeeded."""


class CheckpointSensor(BaseSensorOperator):
    """Waits until every stage of this run's epoch has acknowledged, completes the checkpoint, and cleans up after it.

    The checkpoint completes as soon as a task sees the last acknowledgement: the task of the stage that gave it, the
    trigger, or this task: the first that comes (semantics D3). This task notifies listeners and deletes old files.

    Deferrable by default: it waits in the triggerer and takes no worker slot. With `deferrable=False` the sensor's
    `mode` decides, `poke` or `reschedule`. A storage that cannot be reached is asked again until `timeout`. The
    task fails with the reason where the checkpoint was declined, expired or aborted and no other attempt is open. As
    long as `CheckpointConfig.tolerable_failed_checkpoints` allows the failure, the sensor opens the epoch's next
    attempt instead, which takes over what has not failed, and goes on waiting. Above the limit the job has failed; then
    Airflow does not retry the task (semantics D5).

    Args:
        storage: storage URI (templated).
        job: the job's name (templated); the DAG's id by default.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None for boto3's own chain.
        deferrable: wait in the triggerer.
        poke_interval: seconds (or a timedelta) between two looks; more than 0.
        listeners: notified how checkpoints ended: a list of `CheckpointListener`s, the same as of the task that
            triggers. Listeners of installed packages come on top.
        savepoint_target: the config's, so that this task makes the savepoints that people ask for from the page.
        table_outlets: by the name of a published table, the asset that gets an event of that table, with the rows that
            the epoch has written to it.
        retries: tries after the first. Not 0 by default, because Airflow itself can fail a deferred task that did
            nothing wrong (it takes the end of the process that deferred for the task's own end when the trigger was
            quick: apache/airflow issues 67287 and 72716); the next try asks the store and goes on.
        retry_delay: seconds (or a timedelta) between two tries.
        **kwargs: what every sensor takes: `timeout`, `mode`, …. With `soft_fail` or `never_fail` a run may end green
            whose epoch is incomplete; a `CheckpointedTaskGroup` never sets them. The event of each `Asset` in
            `outlets` says which checkpoint completed.

    Raises:
        InvalidConfigError: no storage is given, the interval is not positive, or `listeners` or `table_outlets` hold
            something else.
        InvalidNameError: the job's name, or a table's, is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is none of ours.
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
        super().__init__(poke_interval=poke_interval, retries=retries, retry_delay=retry_delay, **kwargs)
        if self.poke_interval <= 0:
            raise InvalidConfigError(
                "poke_interval must be above 0 seconds", task=self.task_id, poke_interval=self.poke_interval
            )
        self.storage = storage
        self.job = job or (self.dag.dag_id if self.has_dag() else None)
        self.aws_conn_id = aws_conn_id
        self.deferrable = deferrable
        with naming(task=self.task_id):
            self.listeners = check_listeners(listeners)
            self._table_outlets = asset_events.check_table_outlets(table_outlets, self.outlets)
        self.add_outlets(self._table_outlets.values())
        check_storage_and_job(self.storage, self.job, task=self.task_id)
        check_savepoint_target(savepoint_target, self.storage, self.job, task=self.task_id)
        self.savepoint_target = None if savepoint_target is None else check_storage_uri(savepoint_target)
        self._stage_tasks: dict[str, TaskRef] = {}
        self._trigger_task: Callable[[], TaskRef] | None = None
        self._where_of: Callable[[str], Where] | None = None
        self._airflow_api_conn_id: str | None = None
        self.runs_again: RunsAgain | None = None
        """The group's tasks, which run again where another run has overtaken the epoch; None outside of a group."""
        self._asked: int | None = None
        self._ended_with: tuple[Coordinator, EndedEntry | None] | None = None

    def watch(
        self,
        trigger: Callable[[], TaskRef],
        stages: Mapping[str, TaskRef],
        where_of: Callable[[str], Where] | None = None,
        airflow_api_conn_id: str | None = None,
    ) -> None:
        """Look for tasks that Airflow has skipped: acknowledge in the place of stages, and skip with the trigger.

        And for tasks that have ended without an acknowledgement, which is an error.

        Args:
            trigger: gives the task that triggers the checkpoint, once the whole DAG file has been parsed.
            stages: the tasks of the stages, by uid; all of them have ended when this task begins.
            where_of: finds all that runs again with the stages of a run, by the run's id.
            airflow_api_conn_id: the connection to Airflow's API; None: a user clears what has to run again.
        """
        self._trigger_task = trigger
        self._stage_tasks = dict(stages)
        self._where_of = where_of
        self._airflow_api_conn_id = airflow_api_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait, and complete the checkpoint.

        Returns:
            Job, checkpoint, epoch, acknowledgements, bytes, the milliseconds from trigger to completion, and, if there
            are any, the stages that were left out and the names of the published tables.

        Raises:
            CheckpointFailedError: it ended without completing; the text carries the reason.
            AirflowFailException: the job failed: too many checkpoints failed, or a try failed that no other follows
                (semantics F4); the text names the root cause. Or every task that has not acknowledged has ended,
                because a user marked it or because it failed and that was not reported; the text names them.
            InvalidConfigError: no checkpoint of the epoch is known: none was triggered, or it was forgotten.
            ListenerError: the checkpoint is complete, and a listener failed; the next try tells it again.
            AirflowSkipException: the task that triggers was skipped.
            AirflowSensorTimeout: the time ran out.
        """
        if not self.deferrable:
            result: dict[str, Any] = super().execute(context)
            return result
        deadline = timezone.utcnow() + timedelta(seconds=self.timeout)
        with self._skipping_as_told():
            return self._finish_or_defer(context, deadline)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once (modes `poke` and `reschedule`); complete the checkpoint if all have acknowledged."""
        result = self._result(rendered_settings(self), context)
        return PokeReturnValue(is_done=result is not None, xcom_value=result)

    def execute_complete(self, context: Context, event: dict[str, Any], deadline: str) -> dict[str, Any]:
        """Go on when the trigger has seen the end of the wait.

        Args:
            context: Airflow's.
            event: what the trigger yielded; the store is asked again, because things may have moved on since.
            deadline: when the sensor's timeout runs out, ISO 8601.

        Raises:
            CheckpointFailedError: the checkpoint ended without completing, or the trigger could not go on.
            AirflowFailException: the job failed, because too many checkpoints failed.
            AirflowSkipException: one of these happened, and `never_fail` or `soft_fail` is set.
            AirflowSensorTimeout: the time ran out.
        """
        with self._skipping_as_told():
            why = why_failed(event, "the checkpoint")
            if why is not None:
                raise CheckpointFailedError(why, job=self.job, kind=event.get("kind"))
            return self._finish_or_defer(context, datetime.fromisoformat(deadline))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a wait; see `execute_complete`.

        Raises:
            AirflowRescheduleException: the task comes back later, which Airflow's own sensor takes for a failure that
                `soft_fail` skips.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSkipException as error:
            if isinstance(error.__cause__, AirflowRescheduleException):
                raise error.__cause__ from None
            raise

    @contextmanager
    def _skipping_as_told(self) -> Iterator[None]:
        """Skip where `soft_fail` or `never_fail` say so, by whichever look a failure is found: as a sensor that pokes.

        Raises:
            AirflowSkipException: the block failed, and one of them is set.
        """
        try:
            yield
        except (AirflowFailException, AirflowSensorTimeout, CairnError) as error:
            if self.never_fail or (self.soft_fail and not isinstance(error, CairnError)):
                option = "never_fail" if self.never_fail else "soft_fail"
                raise AirflowSkipException(f"Skipping due to {option} is set to True.") from error
            raise

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Tell OpenLineage which job this is."""
        return lineage.of_start(self.storage, self.job)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - as it is called
        """Tell OpenLineage which tables the checkpoint published; only the job where none completed."""
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
            ),
            method_name="execute_complete",
            kwargs={"deadline": deadline.isoformat()},
            timeout=left,
        )
        raise AssertionError("defer() does not return")

    def _result(self, settings: JobSettings, context: Context) -> dict[str, Any] | None:
        """Look once; give the result, and what the events of the task's assets say, once the epoch is completed."""
        result = self._look(settings, context["ti"])
        if result is not None:
            coordinator, _ = self._ended_with or (None, None)
            rows = asset_events.rows_by_table(coordinator if self.outlets else None, result)
            asset_events.describe(self.outlets, self._table_outlets, context, settings, result, rows)
        return result

    def _look(self, settings: JobSettings, ti: RuntimeTaskInstanceProtocol) -> dict[str, Any] | None:
        """Look once; give the result once the epoch is completed, by this task or by another."""
        try:
            with settings.naming_connection():
                return self._look_at_store(settings, ti)
        except (JobFailedError, NobodyAcknowledgesError) as error:
            # semantics D5: another try would find the same. A retry of a stage starts the job again, or a clear does.
            raise AirflowFailException(str(error)) from error

    def _look_at_store(self, settings: JobSettings, ti: RuntimeTaskInstanceProtocol) -> dict[str, Any] | None:
        coordinator = settings.coordinator()
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
            self._let_run_again(coordinator, progress, ti)
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
                with suppress(CheckpointFailedError):  # it has ended since; another attempt may be open
                    coordinator.complete(progress.checkpoint)
                progress = coordinator.go_on(epoch)
            if isinstance(progress, EpochCompleted):
                return self._completed(coordinator, settings, progress, ti)
        except UnavailableError as error:
            log.warning("the storage cannot be reached, asking again: %s", error)
            return None
        if goes_on(progress):
            log.info("%s", describe(progress))
            return None
        if isinstance(progress, Ready):
            return None
        return self._ended(coordinator, settings, progress, ti)

    def _go_on(self, coordinator: Coordinator, epoch: str, ti: RuntimeTaskInstanceProtocol) -> Progress:
        return coordinator.go_on(epoch, lambda owner: state_of(ti, owner))

    def _skip_with_trigger(self, coordinator: Coordinator, progress: Failed, ti: RuntimeTaskInstanceProtocol) -> None:
        """Skip this task where the run was skipped: its input was read, say, by another run since (semantics T8).

        How its last attempt ended says nothing of this run then. Where a stage's task triggers, the author may have
        skipped that stage alone, and another one have triggered.

        Raises:
            AirflowSkipException: it was.
        """
        if self._trigger_task is None:
            return
        trigger = self._trigger_task()
        stages = set(self._where_of(str(ti.run_id)).tasks.values()) if self._where_of is not None else set()
        skipped = {trigger} | (stages if progress.checkpoint and trigger in stages else set())
        states = states_of(ti, skipped)
        if all(states.get(task) == SKIPPED for task in skipped):
            if progress.checkpoint:
                self._note(coordinator, ti, notes.skipped(str(trigger)))
            raise AirflowSkipException(
                f"the task that triggers the checkpoint was skipped, so there is none; the log of {trigger} says why"
            )

    def _let_run_again(self, coordinator: Coordinator, progress: Progress, ti: RuntimeTaskInstanceProtocol) -> None:
        """Have the tasks run again whose work was replaced, where they do not yet (semantics F5, C2).

        Raises:
            AirflowRescheduleException: stages were cleared, and Airflow starts this task after them; or the API cannot
                be reached now.
            AirflowFailException: only a user can clear them; the text says what to clear.
        """
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
        """Have tasks run again that have ended well although their stages have not acknowledged (semantics F5).

        Raises:
            AirflowRescheduleException: some were cleared; or the API cannot be reached now.
        """
        try:
            cleared = start_again(coordinator, epoch, progress, states, self._where_of, self._airflow_api_conn_id)
        except AirflowApiError as error:
            self._come_back(error)
        if cleared and self._stage_tasks:
            raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER)

    def _come_back(self, error: AirflowApiError) -> NoReturn:
        log.warning("what has to run again cannot be cleared now, asking again: %s", error)
        raise AirflowRescheduleException(timezone.utcnow() + COME_BACK_AFTER) from error

    def _completed(
        self,
        coordinator: Coordinator,
        settings: JobSettings,
        completed: EpochCompleted,
        ti: RuntimeTaskInstanceProtocol,
    ) -> dict[str, Any]:
        """Report the checkpoint, tell the listeners and clean: the process that completed it need not have.

        Raises:
            AirflowRescheduleException: the job is to stop with a savepoint, whose files could not be copied now.
        """
        if ti.try_number > 1 and self._trigger_task is not None and was_skipped(ti, self._trigger_task()):
            # Not skipped, as the stages are: what follows the group needs the checkpoint, and that is there.
            log.info("%s", already_completed(coordinator, settings.storage, completed))
        result = outcome.result_of(coordinator, completed, ti.run_id)
        try:
            tell(coordinator, self.listeners)
        finally:
            outcome.clean(coordinator)
        head = coordinator.head()
        entry, latest = head.ended_by_id(completed.checkpoint), head.latest_completed()
        self._ended_with = (coordinator, entry)
        if entry is not None:
            self._note(coordinator, ti, notes.completed(entry, latest.read.gaps if latest else ()))

        def opened(uri: str) -> ObjectStore:
            return CheckpointStorageHook(uri, settings.aws_conn_id).open_store()

        held = asked_savepoints.go_on(coordinator, self.savepoint_target, opened)
        if held is not None:
            now = timezone.utcnow()
            raise AirflowRescheduleException(now + asked_savepoints.again_after(held, round(now.timestamp() * 1000)))
        return result

    def _ended(
        self, coordinator: Coordinator, settings: JobSettings, progress: Progress, ti: RuntimeTaskInstanceProtocol
    ) -> NoReturn:
        tell_if_possible(coordinator, self.listeners)
        assert isinstance(progress, Failed)
        if progress.checkpoint != 0:
            next_step = outcome.next_step_of(coordinator, settings.storage, progress)
            self._note(coordinator, ti, notes.failed(progress, next_step))
        raise outcome.failure_of(coordinator, settings.storage, progress, ti.run_id)

    def _note(self, coordinator: Coordinator, ti: RuntimeTaskInstanceProtocol, said: str) -> None:
        """Write it on the run; outside of a group there is no connection for that."""
        notes.write(self._airflow_api_conn_id, ti.dag_id, str(ti.run_id), coordinator.job, said)


def _missing(progress: Progress) -> tuple[str, ...]:
    return progress.missing if isinstance(progress, Waiting) else ()
