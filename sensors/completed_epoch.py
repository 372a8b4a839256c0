"""`CompletedEpochSensor`: a task of another DAG, or of another Airflow, that waits until a job has read some input."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError
from ..checkpoint.validation import check_spelling
from ..storage.errors import UnavailableError
from ..tasks.job_settings import check_storage_and_job, naming, rendered_settings
from ..triggers.completed_epoch import CompletedEpochTrigger, completed_in
from ..triggers.polling import why_failed

log = logging.getLogger("airflow_cairn")


class CompletedEpochSensor(BaseSensorOperator):
    """Waits until a job has completed a run's epoch, or has read a window of time. It only reads the job's head.

    So it needs neither the job's DAG nor its Airflow: the storage, and the right to read there. In the job's own DAG
    `wait_for_checkpoint` does more.

    Args:
        storage: storage URI of the job (templated).
        job: the job's name (templated).
        run_id: the job's DAG run whose epoch has to have completed (templated); None: the window decides.
        start: the window's first moment, ISO 8601 (templated); by default where this run's data interval starts.
        end: the first moment after it (templated); by default where this run's data interval ends. The job has read the
            window when its newest completed checkpoint holds all of it, of one run or of several.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None for boto3's own chain.
        deferrable: wait in the triggerer.
        poke_interval: seconds (or a timedelta) between two looks, in the triggerer at first; more than 0.
        **kwargs: what every sensor takes: `timeout`, `mode`, `soft_fail`, `outlets`, ….

    Raises:
        InvalidConfigError: storage or job are missing, or the interval is not positive.
        InvalidNameError: the job's name is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is none of ours.
    """

    template_fields: Sequence[str] = ("storage", "job", "run_id", "start", "end")
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        run_id: str | None = None,
        start: str | None = "{{ data_interval_start }}",
        end: str | None = "{{ data_interval_end }}",
        aws_conn_id: str | None = None,
        deferrable: bool = True,
        poke_interval: timedelta | float = 30.0,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(poke_interval=poke_interval, **kwargs)
        if self.poke_interval <= 0:
            raise InvalidConfigError(
                "poke_interval must be above 0 seconds", task=self.task_id, poke_interval=self.poke_interval
            )
        self.storage = storage
        self.job = job
        self.run_id = run_id
        # A window that is not asked for is not rendered: the run may have no data interval.
        self.start, self.end = (None, None) if run_id is not None else (start, end)
        self.aws_conn_id = aws_conn_id
        self.deferrable = deferrable
        check_storage_and_job(storage, job, task=self.task_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait.

        Returns:
            The job, and the checkpoint that completed the epoch, or the newest, which holds the window.

        Raises:
            InvalidConfigError: there is nothing to wait for, or the job no longer knows what it has read so long ago.
            CairnError: the storage cannot be read.
            AirflowSensorTimeout: the time ran out.
        """
        if not self.deferrable:
            result: dict[str, Any] = super().execute(context)
            return result
        found = self._look()
        if found is None:
            self._wait_in_the_triggerer()
        return found

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - as it is called
        """Look once (modes `poke` and `reschedule`)."""
        found = self._look()
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as it is called
        """Go on when the trigger has seen it.

        Args:
            context: Airflow's.
            event: what the trigger yielded.

        Raises:
            CheckpointFailedError: the trigger could not go on; the text says why.
        """
        why = why_failed(event, "the job's checkpoint")
        if why is not None:
            raise CheckpointFailedError(why, job=self.job, kind=event.get("kind"))
        return {"job": self.job, "checkpoint": event["checkpoint"]}

    def _look(self) -> dict[str, Any] | None:
        settings = rendered_settings(self)
        try:
            with naming(task=self.task_id), settings.naming_connection():
                found = completed_in(settings.coordinator(), self.run_id, *self._window())
        except UnavailableError as error:
            log.warning("the storage cannot be reached, asking again: %s", error)
            return None
        return None if found is None else {"job": settings.job, "checkpoint": found}

    def _window(self) -> tuple[str | None, str | None]:
        """Give the window as text; a DAG that renders templates to Python's own types gives moments."""
        start, end = (each.isoformat() if isinstance(each, datetime) else each for each in (self.start, self.end))
        return start, end

    def _wait_in_the_triggerer(self) -> NoReturn:
        settings = rendered_settings(self)
        start, end = self._window()
        self.defer(
            trigger=CompletedEpochTrigger(
                storage=str(settings.storage),
                job=settings.job,
                run_id=self.run_id,
                start=start,
                end=end,
                aws_conn_id=settings.aws_conn_id,
                poll_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("defer() does not return")
