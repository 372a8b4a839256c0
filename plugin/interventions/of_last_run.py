"""The last run of a job that drains before it stops with a savepoint (semantics P2).

The stop is in the head before the run is made: otherwise the run would begin as any other. If the process ends between
the two, a person who goes on with the stop has the run made; Airflow has a run's id once, so it is made once.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import SavepointEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.savepoints.savepoint_request import drain_run
from ...hooks.airflow_api import AirflowApiError, AirflowApiHook
from .of_runs import under_way
from .plan import InterventionRefusedError, Means


def last_epoch(request: str) -> str:
    """Give the epoch that is to be a job's last one: the same request has the same."""
    return epoch_name(drain_run(request))


def effects(head: Head, dag_id: str) -> Iterator[str]:
    """Say what is done before the savepoint."""
    yield f"Airflow makes one more run of {dag_id} now, the last one. Its stages emit what they hold back."
    yield from under_way(head, "The last run")
    yield "The savepoint waits until the last run has completed, and holds everything up to it."


def begin(coordinator: Coordinator, entry: SavepointEntry, means: Means) -> None:
    """Have Airflow make the last run, just after the stop was opened. Where it refuses, the stop fails.

    If Airflow does not answer, the run may have been made; `go_on` looks.

    Args:
        coordinator: of the job.
        entry: the stop.
        means: Airflow's API, asked as the person, and where the DAG has savepoints made.

    Raises:
        InterventionRefusedError: Airflow makes no run; the job goes on.
        CairnError: a store refused, or did not answer.
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
    """Say why a last run that is waited for will not complete by itself; changes nothing.

    Returns:
        None where Airflow has the run, and it has not ended.
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
    """Have a last run that is waited for made, or give the stop up where it has ended without its checkpoint.

    Args:
        coordinator: of the job.
        entry: the stop, as of an earlier look.
        means: Airflow's API, asked as the person who wants it, and where the DAG has savepoints made.

    Raises:
        InterventionRefusedError: Airflow makes no run now; the stop waits on.
        CairnError: a store refused, or did not answer.
    """
    now = coordinator.look_for_savepoint(entry.request)
    if now is None or not (now.drains and now.waits):
        return
    run_id = run_id_of(entry.epoch)
    try:
        if means.api.run_state(means.dag_id, run_id) is None:
            means.api.start_run(means.dag_id, run_id, system_runtime().now_ms())
        elif means.api.is_over(means.dag_id, run_id):
            _give_up(coordinator, now, f"its DAG run {run_id} has ended", means)
    except AirflowApiError as error:
        # Who asks may have fewer rights than who stopped the job: that is no reason to give the stop up.
        raise InterventionRefusedError(f"The last run has not been made: {error.message}.") from error


def _was_refused(error: AirflowApiError) -> bool:
    """Tell whether Airflow has answered that it does not do it: then it has done nothing."""
    status = error.fields.get("status")
    return isinstance(status, int) and 400 <= status < 500


def _give_up(coordinator: Coordinator, entry: SavepointEntry, detail: str, means: Means) -> bool:
    """Fail the stop, and empty its folder; not where an attempt of the last run is under way."""
    given_up = coordinator.give_up_stop(entry.epoch, detail)
    if given_up:
        coordinator.go_on_with_savepoint(entry.request, means.target, means.open_folder)
    return given_up
