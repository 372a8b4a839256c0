"""The task of a stage, whatever starts its application: claim, acknowledgement and failure are one code for all."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from ...checkpoint.acts.carry_over import replaced_executions
from ...checkpoint.answers import Reconnect, Submit
from ...checkpoint.config import check_parallelism
from ...checkpoint.errors import CheckpointError, InvalidConfigError
from ...checkpoint.extensions.contracts import commit_checks
from ...hooks.task_refs import why_ended
from ...storage.names import check_name
from ...tasks.dag_runs import stop_if_paused
from ...tasks.job_settings import (
    CheckpointScope,
    JobSettings,
    check_room,
    check_storage_and_job,
    naming,
    rendered_settings,
    scope_of,
)
from ...tasks.messages import skipping
from ...tasks.reports import lineage
from ..graph.declaration import Exchange, StageOperator, checked_exchange, checked_reads, stage_uid
from ..graph.topology import stands_aside, trigger_before
from . import programs
from .extras import log_restore_source
from .outcome import NO_CURE, StageFailedError, StageNotRetryableError, StageRun, failed_prefix, left_out

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from ...checkpoint.documents.acknowledgement import AckDocument
    from .drivers import StageDrivers

log = logging.getLogger("airflow_cairn")


class EpochStage(StageOperator):
    """Runs one stage of the DAG run's epoch; a subclass starts the application and waits for it."""

    _trigger_rule: TriggerRule
    _run: StageRun | None = None
    _told_to_end = False
    ended_here = False
    """Whether this process has just seen its driver's own process end well."""
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
        """Check and keep the options of a stage, which `SparkEpochOperator` describes; return those of its group."""
        scope = scope_of(self.task_group)
        self.completes = scope is None or not commit_checks(scope.listeners)
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

    @property
    def trigger_rule(self) -> TriggerRule:
        """The author's rule; `always` in place of the default if the stage need not wait for the trigger task.

        That saves a round of Airflow's scheduler: it passes over the trigger task in one round, sleeps, and looks at
        the stage in the next.
        """
        if self._trigger_rule != TriggerRule.ALL_SUCCESS:
            return self._trigger_rule
        before = trigger_before(self)
        return self._trigger_rule if before is None or not stands_aside(before) else TriggerRule.ALWAYS

    @trigger_rule.setter
    def trigger_rule(self, rule: TriggerRule) -> None:
        self._trigger_rule = rule

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
        """Submit the application and wait for its end."""

    @abstractmethod
    def _reconnect(self, context: Context, drivers: StageDrivers, run: StageRun) -> None:
        """Wait for a driver that an earlier try of this task submitted (semantics F5)."""

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
                (S1), another epoch holds the place that this one needs (T2), another run has overtaken this one (C2),
                or another attempt came while this one was claimed (F5).
            InvalidConfigError: no checkpoint was triggered for the epoch, or the rendered storage and job are too
                long for S3.
        """
        # A parse does not need these imports.
        from .claim import StageClaim

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
        """Run the application to its end by a function, check its acknowledgement, and complete if it was the last."""
        from .trigger_and_complete import complete_if_last

        self._run, it = run, run.handover
        with settings.naming_connection():
            own = self._run_execution(context, run, until_end)
        log.info("Checkpoint %s: acknowledged", run.title)
        if self.completes:
            complete_if_last(run.coordinator, it.epoch, it.stage, looked=not self.ended_here, own=own)
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
        # As the claim saw it: an attempt that has come since either keeps this execution, or replaces it itself.
        head, it = run.coordinator.known_head(), run.handover
        log_restore_source(head, it)
        drivers.end_those_before(it.token, replaced_executions(head, it.stage, it.token))
        log.info("Checkpoint %s: submitting", run.title)
        with programs.in_places(self, run):
            self._submit(context, drivers, settings, answer, run)

    def _run_execution(self, context: Context, run: StageRun, until_end: Callable[[], None]) -> AckDocument | None:
        """Run the application to its end; check that it has acknowledged, and return that if it can be read."""
        from .overtaken_epoch import reschedule_if_replaced

        coordinator, uid = run.coordinator, run.handover.stage
        try:
            until_end()
            programs.acknowledge(run, vanished=self.pod_vanished)
            return run.check_acknowledged(vanished=self.pod_vanished, judged=self.ended_here)
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
            reschedule_if_replaced(coordinator, run.handover, error)
            raise

    def _ended(self, run: StageRun, why: str) -> StageFailedError:
        """Return the error for a try that Airflow ended, and log the reason."""
        log.error("Checkpoint %s: ended: %s", run.title, why)
        return run.refused(why, incurable=False)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Begin when the trigger's turn has come, if this stage's task triggers.

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
