"""`CompletedEpochSensor`: a task in another DAG, or another Airflow, that waits until a job has read some input."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError
from ..checkpoint.validation import check_seconds, check_spelling
from ..storage.errors import ForbiddenError, UnavailableError
from ..tasks.job_settings import check_storage_and_job, naming, rendered_settings
from ..triggers.completed_epoch import Committing, CompletedEpochTrigger, completed_in
from ..triggers.polling import why_failed
from . import outcome

log = logging.getLogger("airflow_cairn")


class CompletedEpochSensor(BaseSensorOperator):
    """Waits until a job has completed a run's epoch, or has read a window of time, and its tables have the rows.

    It only reads the job's head: it needs neither the job's DAG nor its Airflow, only read access to the storage. In
    the job's own DAG `wait_for_checkpoint` does more.

    Args:
        storage: storage URI of the job (templated).
        job: the job's name (templated).
        run_id: the job's DAG run whose epoch must have completed (templated); None: the window decides.
        start: the window's start, ISO 8601 (templated); by default the start of this run's data interval.
        end: the window's end, exclusive (templated); by default the end of this run's data interval. The job has read
            the window when its newest completed checkpoint covers all of it, with one run or with several.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain.
        wait_for_tables: wait until the group's `tables` have the rows of this checkpoint and of those before it, too; a
            commit that was given up is not waited for. False: the checkpoint alone decides.
        deferrable: wait in the triggerer.
        poke_interval: seconds (or a timedelta) between two looks, in the triggerer at first; more than 0. A look costs
            one request.
        **kwargs: arguments of every sensor: `timeout`, `mode`, `soft_fail`, `outlets`, ….

    Raises:
        InvalidConfigError: storage or job is missing, the interval is not positive, or `wait_for_tables` is not a bool.
        InvalidKeyError: the job's name is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is not supported.
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
        wait_for_tables: bool = True,
        deferrable: bool = True,
        poke_interval: timedelta | float = 30.0,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        poke_interval = check_seconds("poke_interval", poke_interval, task=kwargs.get("task_id"))
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.storage = storage
        self.job = job
        self.run_id = run_id
        # Without a window no template is rendered: the run may have no data interval.
        self.start, self.end = (None, None) if run_id is not None else (start, end)
        self.aws_conn_id = aws_conn_id
        if not isinstance(wait_for_tables, bool):
            raise InvalidConfigError(
                "wait_for_tables must be True or False", wait_for_tables=repr(wait_for_tables), task=self.task_id
            )
        self.wait_for_tables = wait_for_tables
        self.deferrable = deferrable
        check_storage_and_job(storage, job, task=self.task_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait for the epoch or the window.

        Returns:
            The job, and the checkpoint that completed the epoch, or the newest one that covers the window.

        Raises:
            InvalidConfigError: there is nothing to wait for, or the job no longer knows what it has read so long ago.
            CairnError: the storage cannot be read.
            AirflowSkipException: one of these errors occurred, and `never_fail` or `soft_fail` is set.
            AirflowSensorTimeout: the timeout expired.
        """
        if not self.deferrable:
            result: dict[str, Any] = super().execute(context)
            return result
        with outcome.skipping_as_told(self):
            found = self._look()
        if found is None:
            self._wait_in_the_triggerer()
        return found

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - as it is called
        """Look once (modes `poke` and `reschedule`)."""
        with outcome.skipping_as_told(self):
            found = self._look()
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as it is called
        """Go on after the trigger has seen the end of the wait.

        Args:
            context: Airflow's task context.
            event: the trigger's event.

        Raises:
            CheckpointFailedError: the trigger could not go on; the message says why.
            AirflowSkipException: the trigger could not go on, and `never_fail` is set.
        """
        why = why_failed(event, "the job's checkpoint")
        with outcome.skipping_as_told(self):
            if why is not None:
                raise CheckpointFailedError(why, job=self.job, kind=event.get("kind"))
        return {"job": self.job, "checkpoint": event["checkpoint"]}

    def _look(self) -> dict[str, Any] | None:
        settings = rendered_settings(self)
        try:
            with naming(task=self.task_id), settings.naming_connection():
                coordinator = settings.coordinator(waits=not self.deferrable)
                found = completed_in(coordinator, self.run_id, *self._window(), wait_for_tables=self.wait_for_tables)
        except UnavailableError as error:
            log.warning("The storage cannot be reached, asking again: %s", error)
            return None
        except ForbiddenError as error:
            if not self.deferrable:
                raise  # opening the store has already waited for it
            log.warning("The storage refuses the credentials, asking again: %s", error)
            return None
        if isinstance(found, Committing):
            log.info("%s", found.text)
            return None
        return None if found is None else {"job": settings.job, "checkpoint": found}

    def _window(self) -> tuple[str | None, str | None]:
        """Return the window as text; a DAG that renders templates to Python's own types gives datetimes."""
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
                wait_for_tables=self.wait_for_tables,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("defer() does not return")
