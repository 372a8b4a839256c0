"""The last run of a job that drains before it stops with a savepoint (semantics P2).

The stop is written to the head before the run is created: otherwise nothing would mark the run as the last one. If the
process crashes in between, a user who continues the stop creates the run. Its id is fixed, so there is no second run.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import SavepointEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.errors import AirflowApiError
from ...checkpoint.savepoints.savepoint_request import drain_run
from ...hooks.airflow_api import AirflowApiHook
from .plan import InterventionRefusedError, Means
from .runs import under_way


def last_epoch(request: str) -> str:
    """Return the epoch of a job's last run: the same request always gives the same epoch."""
    return epoch_name(drain_run(request))


def effects(head: Head, dag_id: str) -> Iterator[str]:
    """Yield what happens before the savepoint, for the page that asks for confirmation."""
    yield f"Airflow makes one more run of {dag_id} now, the last one. Its stages emit what they hold back."
    yield from under_way(head, "The last run")
    yield "The savepoint waits until the last run has completed, and holds everything up to it."


def begin(coordinator: Coordinator, entry: SavepointEntry, means: Means) -> None:
    """Create the last run in Airflow, after the stop is recorded. If Airflow refuses, the stop fails.

    If Airflow does not answer, the run may exist; `go_on` looks for it.

    Raises:
        InterventionRefusedError: Airflow refused to create the run; the job continues.
    """
    if not entry.waits:
        return
    try:
        means.api.start_run(means.dag_id, run_id_of(entry.epoch), system_runtime().now_ms())
    except AirflowApiError as error:
        if not _was_refused(error):
            return
        detail = f"Airflow makes no last run: {error.message}"
        if _give_up(coordinator, entry, detail, means):
            raise InterventionRefusedError(f"{detail}. So the stop has failed, and the job goes on.") from error


def missing(entry: SavepointEntry, api: AirflowApiHook, dag_id: str) -> str | None:
    """Return why the last run needs a user's action; read only.

    Returns:
        The reason; None if Airflow has the run, and it has not ended.
    """
    run_id = run_id_of(entry.epoch)
    try:
        if api.run_state(dag_id, run_id) is None:
            return f"Airflow has no DAG run {run_id} yet. A person who may make runs has it made with Go on"
        if api.is_over(dag_id, run_id):
            return f"the DAG run {run_id} has ended. A person who may edit runs gives the stop up with Go on"
    except AirflowApiError as error:
        return f"Airflow does not say whether it has the DAG run {run_id}: {error.message}"
    return None


def go_on(coordinator: Coordinator, entry: SavepointEntry, means: Means) -> None:
    """Create an awaited last run, or give the stop up if the run has ended without its checkpoint.

    Raises:
        InterventionRefusedError: Airflow does not create the run now; the stop keeps waiting.
    """
    now = coordinator.look_for_savepoint(entry.request)
    if now is None or not (now.drains and now.waits):
        return
    run_id = run_id_of(entry.epoch)
    try:
        if means.api.run_state(means.dag_id, run_id) is None:
            means.api.start_run(means.dag_id, run_id, system_runtime().now_ms())
        elif means.api.is_over(means.dag_id, run_id):
            _give_up(coordinator, now, f"the DAG run {run_id} has ended", means)
    except AirflowApiError as error:
        # This user may have fewer rights than the one who stopped the job: no reason to give the stop up.
        raise InterventionRefusedError(f"The last run has not been made: {error.message}.") from error


def _was_refused(error: AirflowApiError) -> bool:
    """Tell whether Airflow has refused the request for good: then it has done nothing."""
    status = error.fields.get("status")
    return isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)


def _give_up(coordinator: Coordinator, entry: SavepointEntry, detail: str, means: Means) -> bool:
    """Fail the stop and empty its folder, unless an attempt of the last run is in progress."""
    given_up = coordinator.give_up_stop(entry.epoch, detail)
    if given_up:
        coordinator.go_on_with_savepoint(entry.request, means.target, means.open_folder)
    return given_up
