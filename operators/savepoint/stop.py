"""`StopWithSavepointOperator`: stops a job with a savepoint, from any DAG (semantics P2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from ...checkpoint.documents.entries import SavepointEntry, Stopped
from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.errors import InvalidConfigError, RetryLaterError
from ...checkpoint.extensions.contracts import CheckpointListener, check_listeners
from ...checkpoint.reasons import Status
from ...checkpoint.savepoints.savepoint_request import SavepointRequest, drain_run
from ...checkpoint.validation import check_spelling
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID, AirflowApiHook
from ...storage.clock import system_runtime
from ...storage.errors import CairnError
from ...tasks.extensions import notify_listeners_best_effort
from ...tasks.job_settings import naming, rendered_settings
from .operators import SavepointOperator, failed

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


LAST_RUN_S = 60.0
"""Seconds after which a drain asks again whether the job's last run has ended. Other runs of the job see the end within
their `recheck_interval`."""

LISTENERS_S = 30.0
"""Seconds after which a stop that waits for listeners notifies them again itself."""


class StopWithSavepointOperator(SavepointOperator):
    """Stops a job with a savepoint (semantics P2), from a DAG other than the job's.

    No other epoch of the job begins. The task waits for the epoch in progress, as a `SavepointOperator` does; the
    savepoint contains it, and the job's listeners are notified of it. The job stops at the moment when the savepoint
    completes. Then the task pauses the job's DAG. If the savepoint fails, the job and its DAG go on.

    Args:
        drain: let a last run begin and finish first; in its stages `epoch.draining` is true.
        pause_dag_id: the DAG that makes the last run and that the task pauses (templated); None: the job's name.
        listeners: the job's listeners, a list of `CheckpointListener`s: this task may notify them of the last
            checkpoint, besides `wait_for_checkpoint`. Listeners of installed packages are added.
        airflow_api_conn_id: the connection to Airflow's API that pauses the DAG; None: a user pauses it. `drain` needs
            it.
        **kwargs: arguments of `SavepointOperator`.

    Raises:
        InvalidConfigError: `drain` is not a bool, or needs a connection; `listeners` has other contents; and the errors
            of `SavepointOperator`.
    """

    template_fields: Sequence[str] = (*SavepointOperator.template_fields, "pause_dag_id")

    def __init__(
        self,
        *,
        drain: bool = False,
        pause_dag_id: str | None = None,
        listeners: Sequence[CheckpointListener] | None = None,
        airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(**kwargs)
        self.drain = drain
        self.pause_dag_id = pause_dag_id
        self.airflow_api_conn_id = airflow_api_conn_id
        with naming(task=self.task_id):
            self.listeners = check_listeners(listeners)
        if not isinstance(drain, bool):
            raise InvalidConfigError("drain must be True or False", task=self.task_id, drain=repr(drain))
        if drain and airflow_api_conn_id is None:
            raise InvalidConfigError(
                "drain needs the connection to Airflow's API, which starts the last run: give airflow_api_conn_id",
                task=self.task_id,
            )

    def request_for(self, context: Context, *, renew: bool) -> SavepointRequest:
        """Return the savepoint request for the job."""
        request = super().request_for(context, renew=renew)
        if not self.drain:
            return replace(request, stop=True)
        settings = rendered_settings(self)
        with settings.naming_connection():
            before = settings.coordinator(waits=True).look_for_savepoint(request.request)
        if (before is None or before.status is Status.FAILED) and self.airflow_api_conn_id is not None:
            # Check this before the head holds the job back: no other task starts the run that the stop would wait for.
            with AirflowApiHook(self.airflow_api_conn_id) as api:
                api.check_runs(self._dag_id)
        return replace(request, stop=True, drain=epoch_name(drain_run(request.request, before)))

    def _take(self, context: Context, *, renew: bool) -> dict[str, Any]:
        """Take the savepoint, and pause the DAG once the job has stopped with it."""
        found = super()._take(context, renew=renew)
        settings = rendered_settings(self)
        with settings.naming_connection():
            stopped = settings.coordinator(waits=True).head().stopped is Stopped.SHUTDOWN
        if not stopped:
            log.info("The job was resumed since: its DAG is left as it is")
        elif self.airflow_api_conn_id is None:
            log.info("The job has stopped; pause its DAG manually")
        else:
            self._pause(self.airflow_api_conn_id, found["savepoint"])
        return {**found, "stopped": stopped}

    def _wait(self, entry: SavepointEntry, coordinator: Coordinator, recheck_interval: float = 0.0) -> NoReturn:
        log.info("The job %s is being stopped: no other run begins than the one that is waited for", self.job)
        if not entry.waits:
            # A task that has the listeners may notify them here; `wait_for_checkpoint` does too.
            notify_listeners_best_effort(coordinator, self.listeners)
            recheck_interval = LISTENERS_S
        elif self.drain and self.airflow_api_conn_id is not None:
            run_id = run_id_of(entry.epoch)
            with AirflowApiHook(self.airflow_api_conn_id) as api:
                if api.start_run(self._dag_id, run_id, system_runtime().now_ms()):
                    log.info("The job's last run has been made: %s of %s", run_id, self._dag_id)
                elif api.is_over(self._dag_id, run_id):
                    self._give_up(entry, coordinator, run_id)
            recheck_interval = LAST_RUN_S
        super()._wait(entry, coordinator, recheck_interval)

    def _give_up(self, entry: SavepointEntry, coordinator: Coordinator, run_id: str) -> None:
        """Fail the stop if the last run has ended and its epoch has not begun, or no task goes on with it."""
        if coordinator.give_up_stop(entry.epoch, f"the DAG run {run_id} has ended"):
            ended = coordinator.look_for_savepoint(entry.request)
            assert ended is not None, "it has just failed"
            raise failed(ended, coordinator.job)

    def _pause(self, conn_id: str, savepoint: str) -> None:
        try:
            with AirflowApiHook(conn_id) as api:
                api.pause(self._dag_id)
        except CairnError as error:
            raise RetryLaterError(
                f"the job has stopped, and its savepoint is kept; but its DAG is not paused: {error.message}",
                code="dag_not_paused",
                **{**error.fields, "dag": self._dag_id, "savepoint": savepoint},
            ) from error
        log.info("The job has stopped, and the DAG %s is paused", self._dag_id)

    @property
    def _dag_id(self) -> str:
        return self.pause_dag_id or str(self.job)
