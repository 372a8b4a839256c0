"""The task of a stage, whatever starts its application: claim, acknowledgement and failure are one code for all."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException

from ...checkpoint.acts.carry_over import replaced_executions
from ...checkpoint.answers import (
    BeginAnswer,
    Cancelled,
    EpochCompleted,
    Failed,
    Queued,
    Reconnect,
    StageAcknowledged,
    Submit,
    TriggerFirst,
    UpstreamsNotReady,
)
from ...checkpoint.config import check_parallelism
from ...checkpoint.documents import layout
from ...checkpoint.documents.head import run_of_head
from ...checkpoint.errors import (
    CheckpointError,
    CheckpointFailedError,
    InvalidConfigError,
    NotTriggeredError,
    RetryLaterError,
)
from ...storage.names import check_name
from ...storage.records import dataclass
from ...tasks.clearing import Where, rerun_note
from ...tasks.dag_runs import start_unless_paused, state_of_run, stop_if_paused
from ...tasks.job_settings import (
    CheckpointScope,
    JobSettings,
    check_room,
    check_storage_and_job,
    naming,
    rendered_settings,
    scope_of,
)
from ...tasks.messages import already_completed, already_failed, skipping
from ...tasks.reports import lineage
from ...tasks.stage_states import acknowledge_for
from ..graph.declaration import Exchange, StageOperator, checked_exchange, checked_reads, stage_uid
from ..graph.topology import config_of, runs_after_success, trigger_before, upstreams_to_look_at, where_of
from . import programs
from .drivers import StageDrivers
from .extras import log_restore_source
from .outcome import NO_CURE, StageFailedError, StageNotRetryableError, StageRun, failed_prefix, left_out
from .overtaken_epoch import (
    clear_restarted_stages,
    let_trigger_run,
    let_upstreams_run,
    not_scheduled,
    overtaken_since,
    wait_in_line,
)
from .programs import program
from .trigger_and_complete import (
    begin_or_trigger,
    came_back,
    complete_if_last,
    first_since_clear,
    is_asked_for,
    is_retry,
    why_ended,
)

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from .drivers import StageDrivers

log = logging.getLogger("airflow_cairn")


class EpochStage(StageOperator):
    """Runs one stage of the DAG run's epoch; a subclass starts the application and waits for it."""

    _run: StageRun | None = None
    _told_to_end = False
    pod_vanished = False
    """Whether the driver's pod was gone before it had ended: Spark's provider reports that as a good end."""

    def _declare(
        self,
        *,
        storage: str | None,
        job: str | None,
        aws_conn_id: str | None,
        uid: str | None,
        parallelism: int | None,
        max_parallelism: int | None,
        reads: Sequence[str],
        exchange: Exchange | None,
        airflow_api_conn_id: str | None,
    ) -> CheckpointScope | None:
        """Check and keep the options of a stage, which `SparkEpochOperator` describes; gives the group's."""
        scope = scope_of(self.task_group)
        if scope is not None:
            aws_conn_id = scope.own("aws_conn_id", aws_conn_id)
        self.storage = storage if storage is not None or scope is None else scope.storage
        self.job = job or (scope.job if scope else self._dag_id_if_any())
        self.aws_conn_id = aws_conn_id if aws_conn_id is not None or scope is None else scope.aws_conn_id
        self.airflow_api_conn_id = scope.airflow_api_conn_id if scope else airflow_api_conn_id
        with naming(task=self.task_id):
            self.uid = check_name("stage", uid if uid is not None else self._own_task_id())
        check_parallelism(parallelism, max_parallelism, task=self.task_id)
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.reads = checked_reads(reads, self.uid, self.task_id, in_group=scope is not None)
        self.exchange = checked_exchange(exchange, self.task_id, in_group=scope is not None)
        check_storage_and_job(self.storage, self.job, task=self.task_id)
        check_room(self.storage, self.job, self.uid, task=self.task_id)
        return scope

    @abstractmethod
    def _prepare(self) -> None:
        """Check the rendered options, before anything is claimed."""

    @abstractmethod
    def _find_drivers(self, context: Context) -> StageDrivers:
        """Return what this try knows of the drivers of the tries before it."""

    @abstractmethod
    def _submit(
        self, context: Context, drivers: StageDrivers, settings: JobSettings, answer: Submit, run: StageRun
    ) -> None:
        """Submit the application and wait for its end.

        Raises:
            StageFailedError: the application did not end well.
        """

    @abstractmethod
    def _reconnect(self, context: Context, drivers: StageDrivers, run: StageRun) -> None:
        """Wait for a driver that an earlier try of this task submitted (semantics F5).

        Raises:
            StageFailedError: the application did not end well.
        """

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Claim the stage's execution, submit the application, and check that it acknowledged.

        Returns:
            Checkpoint, epoch, attempt and stage; None if there was nothing to submit.

        Raises:
            AirflowFailException: the epoch has failed, and no retry follows; or the application failed with an
                error that no retry cures (semantics F4); or stages that it reads from must run again first, and a
                user has to clear them: the message says which.
            AirflowSkipException: the epoch is completed, with this stage or without it (semantics B3, F6); running
                the stage again would fold its input in twice.
            StageFailedError: the application failed, declined, or never opened an epoch.
            UnreachableError: its driver on the cluster lives or may live, and can no longer be watched.
            FencedError: another attempt replaced this one while it ran.
            AirflowRescheduleException: stages that it reads from run again first (semantics F1), the DAG is paused
                (S1), another epoch holds the place that this one needs (T2), or another run has overtaken this one
                (C2).
            InvalidConfigError: no checkpoint was triggered for the epoch, or the rendered storage and job are too
                long for S3.
        """
        # A parse does not need these imports.

        self._prepare()
        ti = context["ti"]
        uid = stage_uid(self.uid, ti.map_index)
        settings = rendered_settings(self)
        check_room(settings.storage, settings.job, uid, task=self.task_id)
        coordinator = settings.coordinator(waits=True)
        drivers = self._find_drivers(context)
        claim = StageClaim(self, context, settings, coordinator, uid, drivers)
        answer = claim.take()
        if answer is None:
            return None
        run = StageRun(coordinator, answer.handover)
        return self._end_with(context, settings, run, lambda: self._begin_with(context, drivers, settings, answer, run))

    def _end_with(
        self, context: Context, settings: JobSettings, run: StageRun, until_end: Callable[[], None]
    ) -> dict[str, Any]:
        """Run the application to its end by a function, check that it has acknowledged, and do what follows."""
        from .trigger_and_complete import complete_if_last

        self._run, it = run, run.handover
        with settings.naming_connection():
            self._run_execution(context, run, until_end)
        log.info("Checkpoint %s: acknowledged", run.title)
        complete_if_last(run.coordinator, it.epoch, it.stage)
        stop_if_paused(run.coordinator, context["ti"])
        return {"checkpoint": it.checkpoint, "epoch": it.epoch, "attempt": it.attempt, "stage": it.stage}

    def _begin_with(
        self,
        context: Context,
        drivers: StageDrivers,
        settings: JobSettings,
        answer: Submit | Reconnect,
        run: StageRun,
    ) -> None:
        """Do what the answer to the claim says, and wait for the application's end."""
        if isinstance(answer, Reconnect):
            self._reconnect(context, drivers, run)
            return
        head, it = run.coordinator.head(), run.handover
        log_restore_source(head, it)
        drivers.end_those_before(it.token, replaced_executions(head, it.stage, it.token))
        log.info("Checkpoint %s: submitting", run.title)
        with programs.in_places(self, run):
            self._submit(context, drivers, settings, answer, run)

    def _run_execution(self, context: Context, run: StageRun, until_end: Callable[[], None]) -> None:
        """Run the application to its end, and check that it has acknowledged."""
        from .overtaken_epoch import reschedule_if_overtaken

        coordinator, uid = run.coordinator, run.handover.stage
        try:
            until_end()
            programs.acknowledge(run, vanished=self.pod_vanished)
            run.check_acknowledged(vanished=self.pod_vanished)
        except CheckpointError as error:
            kept = left_out(coordinator, run.handover.epoch, uid)
            if kept is not None:
                raise skipping(kept) from error
            if isinstance(error, StageFailedError) and self._told_to_end:
                raise self._ended(run, why_ended(context["ti"])) from error
            if isinstance(error, StageFailedError):
                why = error.message.removeprefix(failed_prefix(uid))
                log.error("Checkpoint %s: failed: %s", run.title, why)  # noqa: TRY400 - Airflow logs the trace, below the cause
            if isinstance(error, StageNotRetryableError):
                # semantics F4: Airflow does not retry this exception, and the callback reports the failure as final.
                raise AirflowFailException(str(error)) from error
            if isinstance(error, InvalidConfigError):
                raise AirflowFailException(f"{error}. {NO_CURE}") from error
            reschedule_if_overtaken(coordinator, run.handover, error)
            raise

    def _ended(self, run: StageRun, why: str) -> StageFailedError:
        """Return the error for a try that Airflow ended, and log the reason."""
        log.error("Checkpoint %s: ended: %s", run.title, why)
        return run.refused(why, incurable=False)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Begin when the trigger's turn has come, if this stage's task triggers.

        Args:
            context: Airflow's task context.
            event: the trigger's event.

        Returns:
            The result of `execute`, whose errors may come too.

        Raises:
            CheckpointError: the wait for a place in the queue ended with an error.
        """
        trigger = trigger_before(self)
        if trigger is not None:
            trigger.check_turn(event)
        return self.execute(context)

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Tell OpenLineage which job this is."""
        return lineage.of_start(self.storage, self.job)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - as it is called
        """Tell OpenLineage what the stage read and wrote; only the job if nothing was submitted."""
        if self._run is None:
            return self.get_openlineage_facets_on_start()
        return lineage.of_stage(rendered_settings(self).storage, self._run.coordinator, self._run.handover)

    @staticmethod
    def _check_failed(drivers: StageDrivers, run: StageRun, error: Exception, cause: str = "") -> None:
        """Check that the application failed, and not only the process that watched it."""
        if run.declined() is None:
            drivers.check_lost(run.handover, error, cause)
        if not isinstance(error, AirflowException | RuntimeError):
            raise error

    def _dag_id_if_any(self) -> str | None:
        return self.dag.dag_id if self.has_dag() else None

    def _own_task_id(self) -> str:
        """Return the task's id without those of its groups; unlike `label` it is not the page's display name."""
        group = self.task_group
        if group is not None and group.node_id and group.prefix_group_id:
            return self.task_id[len(group.node_id) + 1 :]
        return self.task_id


# The claim of a stage's execution: a try asks for the right to submit, and acts on the answer.


@dataclass(frozen=True, slots=True)
class StageClaim:
    """One try's claim of a stage's execution: the question to the coordinator, and the reaction to the answer."""

    operator: StageOperator
    context: Context
    settings: JobSettings
    coordinator: Coordinator
    uid: str
    """The stage's uid; for a mapped task that of the instance."""
    drivers: StageDrivers
    """Tells the fate of a driver that an earlier try submitted."""

    def take(self) -> Submit | Reconnect | None:
        """Claim the execution.

        Returns:
            The submission or the driver to reconnect to; None if the stage has nothing left to do.

        Raises:
            AirflowFailException, AirflowSkipException, AirflowRescheduleException, CheckpointFailedError,
                InvalidConfigError: see `SparkEpochOperator.execute`.
        """
        with self.settings.naming_connection():
            try:
                answer = self._ask()
            except NotTriggeredError as error:
                self._let_trigger_begin(error)
        self._check_others_run_again(answer)
        match answer:
            case Submit() | Reconnect():
                return answer
            case StageAcknowledged():
                log.info(
                    "Checkpoint %d · epoch %s · stage %s: already acknowledged, nothing to submit",
                    answer.checkpoint,
                    self._run_name(),
                    self.uid,
                )
                complete_if_last(self.coordinator, self.epoch, self.uid)
            case EpochCompleted():
                self._check_took_part(answer)
            case Failed():
                # semantics F4: the head decided that no other try follows, but the process that asked died before it
                # could tell Airflow.
                raise AirflowFailException(already_failed(self.context["ti"].run_id, answer))
            case Cancelled():
                raise self._input_missing(answer)
            case Queued():
                wait_in_line(answer)
            case TriggerFirst():
                let_trigger_run(
                    overtaken_since(answer.checkpoint), self.uid, self._where(), self.operator.airflow_api_conn_id
                )
            case UpstreamsNotReady():
                let_upstreams_run(
                    answer,
                    self.uid,
                    self._where(),
                    self.operator.airflow_api_conn_id,
                    self._begin,
                    self._unclaimed_now,
                )
        return None

    @property
    def epoch(self) -> str:
        """The name of the run's epoch."""
        return layout.epoch_name(self.context["ti"].run_id)

    def _ask(self) -> BeginAnswer:
        try:
            answer = begin_or_trigger(self._begin, self.operator, self.context, self.coordinator, self.epoch)
        except RetryLaterError as error:
            if error.code != "job_paused":
                raise
            if not start_unless_paused(self.coordinator, self.context["ti"]):
                # Airflow starts no task of a paused DAG: this task comes back after the pause.
                raise AirflowRescheduleException(timezone.utcnow()) from None
            answer = self._begin()
        if isinstance(answer, UpstreamsNotReady) and upstreams_to_look_at(self.operator):
            # Beginning has opened another attempt; the skipped stages must be acknowledged in that attempt.
            answer = self._begin()
        return answer

    def _begin(self) -> BeginAnswer:
        ti, retries = self.context["ti"], self.operator.retries
        config = config_of(self.operator)
        acknowledge_for(self.coordinator, self.epoch, ti, upstreams_to_look_at(self.operator))
        return self.coordinator.begin(
            self.epoch,
            self.uid,
            str(ti.id),
            cleared_by_user=is_asked_for(ti, retries),
            rescheduled=came_back(self.context),
            drivers=self.drivers,
            try_number=ti.try_number,
            first_try=first_since_clear(ti, retries),
            state_of=lambda owner: state_of_run(ti, owner),
            timeout_ms=None if config is None else config.timeout_ms,
            program=program(self.operator),
            after_success=runs_after_success(self.operator),
        )

    def _unclaimed_now(self) -> Collection[str]:
        return self.coordinator.unclaimed(self.epoch)

    def _check_others_run_again(self, answer: BeginAnswer) -> None:
        """Clear the tasks that an attempt has replaced besides this stage's, whichever process opened the attempt.

        Either the process that opened it died before it cleared them, or this try has opened the attempt itself.
        """
        if isinstance(answer, StageAcknowledged | Submit | Reconnect) and answer.restarted:
            where = self._where()
            others = not_scheduled(self.context["ti"], where, answer.restarted)
            conn_id, note = self.operator.airflow_api_conn_id, rerun_note(self.uid)
            clear_restarted_stages(others, self.uid, where, conn_id, note, self._unclaimed_now)

    def _let_trigger_begin(self, error: NotTriggeredError) -> NoReturn:
        """Let the task that triggers start the epoch anew: no try of this stage can take it up (T8, R5)."""
        ti = self.context["ti"]
        if error.code == "rewound" and not is_asked_for(ti, self.operator.retries):
            # A user has rewound the job and decides which runs begin anew. A retry would find the same.
            raise AirflowFailException(str(error)) from error
        let_trigger_run(error.message, self.uid, self._where(), self.operator.airflow_api_conn_id)

    def _check_took_part(self, answer: EpochCompleted) -> None:
        kept = left_out(self.coordinator, self.epoch, self.uid)
        if kept is not None or not is_retry(self.context["ti"], self.operator.retries):
            raise skipping(kept or already_completed(self.coordinator, self.settings.storage, answer))
        # Either the try before acknowledged and its task died then, or the stage was added to the DAG during the run
        # and the epoch completed without it. Skipping the task would skip the tasks after it.
        log.info(
            "Checkpoint %d has completed epoch %s: stage %s has nothing to submit",
            answer.checkpoint,
            self._run_name(),
            self.uid,
        )

    def _input_missing(self, answer: Cancelled) -> CheckpointFailedError | AirflowFailException:
        # semantics B4: a driver would find its input missing only after a minute of starting.
        where = self._where()
        if where.removed([answer.upstream]):
            return AirflowFailException(
                f"nothing was submitted: {answer.upstream}, which this stage reads from, has declined "
                f"({answer.detail}): {where.ways_on_without([answer.upstream])}"
            )
        return CheckpointFailedError(
            f"nothing was submitted: {answer.upstream}, which this stage reads from, has declined ({answer.detail}). "
            f"Let {answer.upstream} run again; a later try of this stage then takes part",
            job=self.settings.job,
            checkpoint=answer.checkpoint,
            attempt=answer.attempt,
            stage=self.uid,
        )

    def _where(self) -> Where:
        ti = self.context["ti"]
        return where_of(self.operator, ti.dag_id, ti.run_id)

    def _run_name(self) -> str:
        return run_of_head(self.coordinator.head(), self.epoch)
