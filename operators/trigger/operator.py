"""`TriggerCheckpointOperator`: the first task of an epoch; makes a checkpoint pending for the DAG run."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowRescheduleException

from ...checkpoint import CheckpointConfig, RequestKind, TriggerRequest
from ...checkpoint.answers import AlreadyRead, Declined, EpochCompleted, InputRefused, TriggerAnswer, Triggered
from ...checkpoint.config import check_stages
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Owner, Slice, StageSpec
from ...checkpoint.documents.entries import Stopped
from ...checkpoint.errors import InvalidConfigError, RefusedError
from ...checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_hooks, check_listeners
from ...checkpoint.reasons import Reason, cause_first
from ...checkpoint.remedies import REMEDIES
from ...checkpoint.rules.admission import reason_of, turn_of
from ...checkpoint.savepoints.savepoint_request import JobShape
from ...checkpoint.source import Source, check_sources
from ...checkpoint.validation import check_seconds, check_span, check_spelling
from ...checkpoint.views.drawn_stages import DrawnStage, drawn
from ...hooks.versions import RetryPolicy, policy_option
from ...spark.pyspark_versions import conflict
from ...storage.errors import CairnError
from ...storage.names import shorten
from ...storage.probe import ensure_probed
from ...tasks.dag_runs import deployment, start_unless_paused, state_of_run
from ...tasks.extensions import listeners_of, master_hooks_of, notify_listeners_best_effort
from ...tasks.job_settings import (
    JobSettings,
    check_savepoint_target,
    check_storage_and_job,
    naming,
    rendered_settings,
    scope_of,
)
from ...tasks.messages import already_completed, already_read, skipping, then_clear
from ...tasks.reports.links import CheckpointLink
from ...triggers.polling import why_failed
from ...triggers.request import RequestTrigger
from ..failure.retry_policy import FAIL_FAST
from ..graph.declaration import Push, TriggerOperator
from ..graph.stages import StageTask
from ..graph.topology import first_stages_of, stages_of
from .checks import check_config, check_only_one, check_slice_detail, check_specs, fit_schedule, name_schedule
from .run_facts import (
    RunOptions,
    check_intervals,
    check_options,
    check_room,
    kind_of,
    options_of,
    run_facts,
    slice_of,
    start_if_asked,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

DECLINED_KEY = "cairn_declined"
"""XCom key of the last answer without a checkpoint: reason, detail, position, retry_at."""


class TriggerCheckpointOperator(TriggerOperator):
    """Triggers the checkpoint of this DAG run's epoch (semantics T5, T6, T8, T9).

    The first trigger fixes the epoch's input slice, the run's data interval: every later attempt reads the same. The
    job remembers which intervals it has read. A run whose interval was read is skipped, and a run whose interval was
    read in part is refused; the conf `{"cairn": {"read_again": true}}` reads it anyway. A schedule that gives its runs
    no interval is refused when the DAG is parsed (Airflow's default for cron expressions gives none), and so is a run
    without one.

    If too many checkpoints are pending, the request takes a place in the queue and waits without a worker slot
    (semantics T2); so does a periodic request until `min_pause` is over (T3). By default it waits in the triggerer,
    which sees in the head when its turn has come. A checkpoint or a place whose DAG run has ended blocks no other run.
    A run whose state cannot be asked counts as running, and so does a run that this deployment does not know, unless
    both have the same deployment name (semantics W8). The log and the XCom `cairn_declined` say what the request waits
    for.

    Args:
        storage: storage URI (templated).
        job: the job's name (templated); the DAG's id by default.
        stages: at least one `StageSpec(uid, upstream=(…), parallelism=None, max_parallelism=None, pipelined=(…))`: the
            stages that must acknowledge, which reads from which, and which of them by a pipelined exchange. A
            `CheckpointedTaskGroup` fills them in.
        config: the checkpoint config of the job.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain.
        slice_detail: additional facts about the epoch's input (offsets, a file list), JSON (templated).
        source: the epoch's input: a `Source` or a list of them; None: the run's data interval.
        reads_window: whether the epoch reads its run's data interval, if there is no `source`. None: yes, and the
            DAG's schedule must give its runs one. True: each run brings its own. False: the stages read no window of
            time; `epoch.slice` has none, and no run is skipped because another has read its interval.
        master_hooks: called before the stages begin; the checkpoint keeps their answers: a list of `MasterHook`s. Hooks
            of installed packages are added.
        listeners: notified how the checkpoint ended: a list of `CheckpointListener`s. Listeners of installed packages
            are added.
        restore_from: the folder of a savepoint that the job starts from while it has no checkpoint (templated); read
            with `aws_conn_id`. A run's conf may name one too: `{"cairn": {"restore_from": …}}`.
        allow_non_restored_state: with `restore_from`: this start may drop state that no stage claims. The option of
            `config` covers every restore.
        claim: with `restore_from`: the job owns the savepoint, and deletes it after copying it.
        deferrable: wait in the triggerer; with False the rescheduled task looks every `recheck_interval`.
        poll_interval: seconds (or a timedelta) between two looks of the triggerer; more than 0.
        recheck_interval: time between two questions to Airflow whether earlier DAG runs still run, while too many
            checkpoints are pending; more than 0.
        kind: the kind of request; None: `PERIODIC` for scheduled, backfilled and asset-triggered runs, `MANUAL` for
            others.
        retries: tries after the first. Not 0 by default, because Airflow itself can fail a deferred task that did
            nothing wrong (see `CheckpointSensor`); the next try finds its place in the queue, or its checkpoint (T9).
        retry_delay: seconds (or a timedelta) between two tries.
        retry_policy: fails the task at once if another try would find the same: state that no stage claims or that
            cannot be restored at its parallelism, a wrong name, conf or savepoint folder (semantics F4); or if the
            job's last run needs this run's place (P2).
        **kwargs: arguments of every operator.

    Raises:
        InvalidConfigError: there are no stages or they make no job; no storage is given; `config` is not a
            CheckpointConfig; `slice_detail` is not a JSON object; `source`, `master_hooks` or `listeners` have other
            contents or do not fit the config; an interval is not positive; the pause does not fit the DAG's schedule;
            the schedule gives no data intervals and neither `source` nor `reads_window` is given; `kind` is neither
            `MANUAL` nor `PERIODIC`; `restore_from` lies in the job's own prefix; or `claim` or
            `allow_non_restored_state` are given without `restore_from`.
        InvalidKeyError: the job's name or a stage's is outside the grammar (semantics W1).
        RefusedError: the config's `savepoint_target` lies in the job's own folder, or is the storage's root.
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job", "slice_detail", "restore_from")
    operator_extra_links: Collection[BaseOperatorLink] = (CheckpointLink(),)
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        stages: Sequence[StageSpec] = (),
        config: CheckpointConfig | None = None,
        aws_conn_id: str | None = None,
        slice_detail: dict[str, Any] | None = None,
        source: Source | Sequence[Source] | None = None,
        reads_window: bool | None = None,
        master_hooks: Sequence[MasterHook] | None = None,
        listeners: Sequence[CheckpointListener] | None = None,
        restore_from: str | None = None,
        allow_non_restored_state: bool = False,
        claim: bool = False,
        deferrable: bool = True,
        poll_interval: timedelta | float = 2.0,
        recheck_interval: timedelta = timedelta(seconds=15),
        kind: RequestKind | None = None,
        retries: int = 2,
        retry_delay: timedelta | float = 5.0,
        retry_policy: RetryPolicy | None = FAIL_FAST,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(retries=retries, retry_delay=retry_delay, **policy_option(retry_policy), **kwargs)
        scope = scope_of(self.task_group)
        # Errors about a group's arguments name the group: its author did not write this task.
        where = {"task": self.task_id} if scope is None else {"group": scope.group_id}
        self.storage = storage
        self.job = job or (self.dag.dag_id if self.has_dag() else None)
        check_storage_and_job(self.storage, self.job, **where)
        self.aws_conn_id = aws_conn_id
        if kind not in (None, RequestKind.MANUAL, RequestKind.PERIODIC):
            raise InvalidConfigError(
                "kind must be RequestKind.MANUAL, RequestKind.PERIODIC or None", **where, kind=shorten(kind)
            )
        self.kind = kind
        self.config = check_config(config, **where)
        if self.has_dag():
            name_schedule(self.dag)
            if kind is not RequestKind.MANUAL:
                self.config = fit_schedule(self.dag, self.config, **where)
        check_slice_detail(slice_detail, rendered=False, **where)
        self.slice_detail = slice_detail
        self.restore_from = restore_from
        self.allow_non_restored_state = allow_non_restored_state
        self.claim = claim
        check_options(self._start(), self.storage, self.job, **where)
        check_savepoint_target(self.config.savepoint_target, self.storage, self.job, **where)
        self.stages = tuple(stages)
        self._stage_tasks: tuple[StageTask, ...] = ()
        with naming(**where):
            self.sources = check_sources(source, self.config.max_concurrent_checkpoints)
            self.listeners = check_listeners(listeners)
            self.master_hooks = check_hooks(master_hooks, self.config.max_concurrent_checkpoints, self.config.timeout)
            self.poll_interval = check_seconds("poll_interval", poll_interval)
            # A group fills them in when its block ends.
            if self.stages or scope is None:
                check_specs(self.stages, self.config)
        self.deferrable = deferrable
        check_span("recheck_interval", recheck_interval, **where)
        self.recheck_interval = recheck_interval
        self.reads_window = reads_window
        if self.has_dag():
            check_intervals(self.dag, reads_window, has_source=bool(self.sources), on_gap=self.config.on_gap, **where)
            check_only_one(self, **where)

    def _start(self) -> RunOptions:
        return RunOptions(self.restore_from, self.allow_non_restored_state, self.claim)

    def take_stages_from(self, tasks: Sequence[StageTask]) -> None:
        """Take over tasks as the stages; the edges between them, later ones too, say which stage reads from which.

        Args:
            tasks: one for each stage.
        """
        self._stage_tasks = tuple(tasks)

    def checked_stages(self) -> tuple[StageSpec, ...]:
        """Return the stages as the whole DAG file declares them, after checking that they make a job.

        Raises:
            InvalidConfigError: the stages make no job; or an exchange contradicts another, or joins no two stages.
        """
        stages = self.declared_stages()
        check_stages(stages, self.config)
        return stages

    def declared_stages(self) -> tuple[StageSpec, ...]:
        """Return the stages as the whole DAG file declares them.

        Raises:
            InvalidConfigError: an exchange contradicts another, or does not join two stages.
        """
        scope = scope_of(self.task_group)
        if not self._stage_tasks or scope is None:
            return self.stages
        return stages_of(self._stage_tasks, scope.pipelined)

    def drawn_stages(self) -> tuple[DrawnStage, ...]:
        """Return the stages for drawing; see `TriggerOperator`."""
        return drawn(self.declared_stages(), {task.uid: task.task_id for task in self._stage_tasks})

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the checkpoint pending.

        Returns:
            Job, storage, checkpoint, epoch, attempt, and the restored checkpoint (None: the job starts empty).

        Raises:
            AirflowSkipException: the epoch is completed already, or the job has read its window.
            TaskDeferred: the request has to wait; the task goes on in the triggerer.
            AirflowRescheduleException: the request has to wait and the task is not `deferrable`, or the DAG is paused
                (semantics S1); Airflow starts the task again later.
            RefusedError: the job declined the request for another reason; or the request would wait for a run that
                Airflow starts only after this one; or a source has nothing that this run may read, the run has no
                data interval, or the job has read some of it.
            CairnError: triggering failed (semantics T1): the store did not answer (`IO_EXCEPTION`, which counts against
                `tolerable_failed_checkpoints`), or anything else (`TRIGGER_CHECKPOINT_FAILURE`). The class is that of
                the failure.
            CallbackError: a master hook failed or was too slow; the checkpoint was aborted.
            CheckpointError: the job belongs to another DAG, or to another deployment (semantics W8).
            InvalidConfigError: a hook of an installed package cannot be used, or the deployment's name is invalid.
            UnsupportedStorageError: the storage fails the probe (semantics W6).
            ForbiddenError: the store refuses the connection's credentials.
            GoneError: the bucket does not exist.
        """
        # Warn in the run's first task: a driver would start and fail in ways that do not name the cause.
        if (problem := conflict()) is not None:
            log.warning("%s", problem)
        return self.trigger(context, context["ti"].xcom_push)

    def trigger(self, context: Context, push: Push, coordinator: Coordinator | None = None) -> dict[str, Any]:
        """Make the checkpoint pending; see `execute` and `TriggerOperator`."""
        from ...checkpoint.extensions.master_hooks import close_all  # a parse asks no hook

        settings = rendered_settings(self)
        coordinator = coordinator or settings.coordinator(waits=True)
        with settings.naming_connection():
            ensure_probed(coordinator.files.store, nonce=secrets.token_hex(8))
        config = self.config
        hooks = master_hooks_of(settings.job, self.master_hooks, config.max_concurrent_checkpoints, config.timeout)
        try:
            return self._trigger(context, push, settings, coordinator, hooks)
        finally:
            close_all(hooks)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Ask again when the trigger reports that it is time; the head decides, because things may have changed.

        Args:
            context: Airflow's task context.
            event: the trigger's event.

        Raises:
            RefusedError: the trigger could not go on; also the errors of `execute`.
        """
        self.check_turn(event)
        return self.execute(context)

    def check_turn(self, event: Mapping[str, Any]) -> None:
        """Check how the wait for a place in the queue ended.

        Raises:
            RefusedError: the trigger could not go on.
        """
        why = why_failed(event, "a place")
        if why is not None:
            raise RefusedError(why, code="trigger_declined", job=self.job, kind=event.get("kind"))
        log.info("Asking again: %s", event.get("detail"))

    @property
    def inherits_from_empty_operator(self) -> bool:
        """Tell Airflow to pass over this task if a first stage does its work."""
        return bool(first_stages_of(self))

    def _trigger(
        self,
        context: Context,
        push: Push,
        settings: JobSettings,
        coordinator: Coordinator,
        hooks: Sequence[MasterHook],
    ) -> dict[str, Any]:
        ti = context["ti"]
        owner = Owner(ti.dag_id, ti.run_id, deployment())
        request = TriggerRequest(
            epoch=layout.epoch_name(ti.run_id),
            slice=slice_of(
                context,
                check_slice_detail(self.slice_detail, rendered=True, task=self.task_id),
                reads_window=self.reads_window is not False,
                has_source=bool(self.sources),
                again=options_of(context["dag_run"].conf).read_again,
            ),
            stages=self.declared_stages(),
            config=self.config,
            owner=owner,
            kind=RequestKind(self.kind) if self.kind else kind_of(context),
            sources=self.sources,
            run=run_facts(context) if self.sources else None,
            hooks=tuple(hook.name for hook in hooks),
            listeners=tuple(listener.name for listener in listeners_of(settings.job, self.listeners)),
        )
        try:
            with settings.naming_connection():
                # Check first: else this DAG's listeners would hear of another DAG's checkpoints, or a savepoint would
                # be copied into that DAG's job.
                coordinator.ownership.check(owner)
            notify_listeners_best_effort(coordinator, self.listeners)
            with settings.naming_connection():
                names = tuple(source.name for source in self.sources)
                runs = JobShape(request.stages, request.hooks, self.config.allow_non_restored_state, names)
                start_if_asked(context, settings, coordinator, self._start(), runs)
                answer = self._ask(coordinator, request, ti)
        except CairnError as error:
            # semantics T1. The class stays, because it says whether another try may help.
            reason = reason_of(error)
            push(DECLINED_KEY, _described(Declined(reason, str(error)), None))
            why = then_clear(f"no checkpoint was triggered: {cause_first(error.message, reason)}")
            raise type(error)(why, code=error.code, **error.fields) from error
        if isinstance(answer, EpochCompleted):
            raise skipping(already_completed(coordinator, settings.storage, answer))
        if isinstance(answer, AlreadyRead):
            raise skipping(already_read(settings.job, settings.storage, answer))
        if isinstance(answer, Declined):
            retry_at = self._retry_at(answer)
            push(DECLINED_KEY, _described(answer, retry_at))
            if retry_at is not None:
                if answer.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND:
                    check_room(self.get_dag(), coordinator, ti)
                self._wait(settings, request, answer, retry_at)
            first = ""
            if answer.reason is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN:
                first = f". Type `cairn resume {settings.job} --storage {settings.storage}`"
            why = then_clear(f"no checkpoint was triggered: {cause_first(answer.detail, answer.reason)}{first}")
            raise RefusedError(why, code="trigger_declined", job=settings.job, epoch=ti.run_id)
        if isinstance(answer, InputRefused):
            raise RefusedError(
                f"no checkpoint was triggered: {answer.detail}",
                code="source_refused",
                job=settings.job,
                epoch=ti.run_id,
                source=answer.source,
            )
        result = self._triggered(answer, settings, ti.run_id)
        with settings.naming_connection():
            if reading := [each for each in self.listeners if getattr(each, "reads", False)]:
                # No earlier epoch is pending now, so none leaves a notice later: stages read all earlier rows.
                coordinator.deliver(reading)
            if coordinator.ask_hooks(answer.pending, hooks):
                log.info("The master hooks have answered: %s", ", ".join(request.hooks))
        return result

    def _ask(self, coordinator: Coordinator, request: TriggerRequest, ti: RuntimeTaskInstanceProtocol) -> TriggerAnswer:
        """Ask for the checkpoint; ask once more if a pause of the DAG had stopped the job and is over (S1)."""

        def ask() -> TriggerAnswer:
            return coordinator.trigger(request, state_of=lambda owner: state_of_run(ti, owner))

        answer = ask()
        if not isinstance(answer, Declined) or answer.reason is not Reason.PERIODIC_SCHEDULER_SHUTDOWN:
            return answer
        if coordinator.head().stopped is not Stopped.PAUSED:
            return answer
        if not start_unless_paused(coordinator, ti):
            log.info("This task waits: %s", cause_first(answer.detail, answer.reason))
            raise AirflowRescheduleException(timezone.utcnow())
        return ask()

    def _wait(self, settings: JobSettings, request: TriggerRequest, answer: Declined, retry_at: datetime) -> NoReturn:
        """Leave the worker until it is time to ask again (semantics T2, T3)."""
        more = ""
        if answer.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS:
            more = f". {REMEDIES[answer.reason].action_for(settings.job, settings.storage)}"
        why = cause_first(answer.detail, answer.reason)
        log.info("No checkpoint is triggered yet: %s; looking again by %s%s", why, retry_at.isoformat(), more)
        if not self.deferrable:
            raise AirflowRescheduleException(retry_at)
        turn = turn_of(request)
        self.defer(
            trigger=RequestTrigger(
                storage=str(settings.storage),
                job=settings.job,
                epoch=turn.epoch,
                kind=str(turn.kind),
                max_concurrent=turn.max_concurrent,
                min_pause_ms=turn.min_pause_ms,
                aws_conn_id=settings.aws_conn_id,
                poll_interval=self.poll_interval,
                recheck_interval=self.recheck_interval.total_seconds(),
            ),
            method_name="execute_complete",
        )
        raise AssertionError("defer() does not return")

    def _retry_at(self, answer: Declined) -> datetime | None:
        """Return when to ask again at the latest; None: never."""
        if answer.retry_at_ms is not None:
            return datetime.fromtimestamp(answer.retry_at_ms / 1000, UTC)
        waits = answer.position is not None or answer.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
        return timezone.utcnow() + self.recheck_interval if waits else None

    def _triggered(self, answer: Triggered, settings: JobSettings, run_id: str) -> dict[str, Any]:
        pending = answer.pending
        for line in answer.log:
            log.info("Source %s", line)
        title = f"{pending.checkpoint} · epoch {run_id} · attempt {pending.attempt}"
        for damage in answer.damages:
            log.warning("Not restored, because it is damaged: %s", damage)
        log.info(
            "Checkpoint %s: %s, waits for %s; input: %s",
            title,
            "triggered" if answer.created else "was triggered before",
            ", ".join(stage.uid for stage in pending.stages),
            _window(pending.slice),
        )
        restored_from = pending.restore.checkpoint if pending.restore else None
        start = f"starts from checkpoint {restored_from}" if restored_from else "starts empty: no checkpoint yet"
        log.info("Checkpoint %s: %s", title, start)
        return {
            "job": settings.job,
            "storage": str(settings.storage),
            "checkpoint": pending.checkpoint,
            "epoch": pending.epoch,
            "attempt": pending.attempt,
            "restored_from": restored_from,
        }


def _described(answer: Declined, retry_at: datetime | None) -> dict[str, Any]:
    return {
        "reason": str(answer.reason),
        "detail": answer.detail,
        "position": answer.position,
        "retry_at": retry_at.isoformat() if retry_at else None,
    }


def _window(fixed: Slice) -> str:
    if fixed.start is None and fixed.end is None:
        return "no window"
    return f"{fixed.start or 'the beginning'} to {fixed.end or 'no end'}"
