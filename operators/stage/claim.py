"""Claims a stage's execution: a try asks for the right to submit, and acts on the answer."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NoReturn

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

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
from ...checkpoint.documents import layout
from ...checkpoint.documents.head import run_of_head
from ...checkpoint.errors import CheckpointFailedError, NotTriggeredError, RetryLaterError
from ...hooks.task_refs import came_back, first_since_clear, is_asked_for, is_retry
from ...storage.records import dataclass
from ...tasks.clearing import Where, rerun_note
from ...tasks.dag_runs import start_unless_paused, state_of_run
from ...tasks.job_settings import JobSettings
from ...tasks.messages import already_completed, already_failed, skipping
from ...tasks.stage_states import acknowledge_for
from ..graph.declaration import StageOperator
from ..graph.topology import config_of, runs_after_success, trigger_before, upstreams_to_look_at, where_of
from .drivers import StageDrivers
from .outcome import left_out
from .overtaken_epoch import (
    clear_restarted_stages,
    let_trigger_run,
    let_upstreams_run,
    not_scheduled,
    overtaken_since,
    wait_in_line,
)
from .programs import program
from .trigger_and_complete import begin_or_trigger, complete_if_last

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


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
                if self.operator.completes:
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
            answer = begin_or_trigger(
                self._begin, self.operator, self.context, self.settings, self.coordinator, self.epoch
            )
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
            triggers=trigger_before(self.operator) is not None,
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
