"""Facts about DAG runs that this deployment knows; tasks and triggers may ask for them (semantics W8, T2)."""

from __future__ import annotations

import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import DagRunState
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowRuntimeError

from ..checkpoint.documents.attempt import Owner
from ..checkpoint.rules.admission import RunState, check_deployment
from ..hooks.task_refs import ENDED_RUN

if TYPE_CHECKING:
    from ..checkpoint import Coordinator


# Identifies this Airflow deployment, so that two that share a storage do not take each other's jobs (semantics W8).


def deployment() -> str:
    """Return this deployment's name: `[cairn] deployment`, else the address of its API server, else an empty text.

    A loopback address names no deployment, because every machine has it.
    """
    named: str = conf.get("cairn", "deployment", fallback="") or ""
    if named.strip():
        return check_deployment(named.strip())
    url: str = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return check_deployment(url) if url and not _is_loopback(urlsplit(url).hostname) else ""


def _is_loopback(host: str | None) -> bool:
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


log = logging.getLogger("airflow_cairn")


def state_of_run(airflow: Any, owner: Owner) -> RunState:
    """Return a DAG run's state as this deployment knows it; a run whose state cannot be asked counts as running.

    `airflow` asks for the states of DAG runs: in a task its running task instance, in the triggerer the class.
    """
    if owner.deployment != deployment():
        return RunState.UNKNOWN  # a run of the same id in this deployment would be another run
    try:
        state = airflow.get_dagrun_state(owner.dag_id, owner.run_id)
    except AirflowRuntimeError as error:
        detail = error.error.detail or {}
        if detail.get("status_code") == 404:
            if owner.deployment:
                log.info("The DAG run %s of %s is not known here: it was deleted", owner.run_id, owner.dag_id)
            else:
                log.warning(
                    "This Airflow does not know the DAG run %s of %s. It counts as running, because it may be another "
                    "deployment's; its checkpoint ends with its timeout. If you have deleted it, type: cairn adopt JOB "
                    "--dag %s --abort-pending",
                    owner.run_id,
                    owner.dag_id,
                    owner.dag_id,
                )
            return RunState.UNKNOWN
        log.warning("Could not ask Airflow about the DAG run %s of %s: %s", owner.run_id, owner.dag_id, error)
        return RunState.RUNNING
    return RunState.ENDED if state in ENDED_RUN else RunState.RUNNING


def is_queued(airflow: Any, dag_id: str, run_id: str) -> bool:
    """Return whether a DAG run is queued; False if it cannot be asked about, or does not exist yet."""
    try:
        return bool(airflow.get_dagrun_state(dag_id, run_id) == DagRunState.QUEUED)
    except AirflowRuntimeError as error:
        log.info("Could not ask Airflow about the run %s of %s: %s", run_id, dag_id, error)
        return False


# Whether the DAG is paused, and what that means for the job's checkpoints (semantics S1).
#
# Airflow does not announce that a DAG was paused: no listener hears of it. Only tasks may ask. So the tasks that run
# during a pause ask, and so do the first ones after it.


def dag_is_paused(ti: Any) -> bool:
    """Return whether the task's DAG is paused; if Airflow does not say, it counts as running."""
    try:
        return bool(ti.get_dag(ti.dag_id).is_paused)
    except AirflowRuntimeError as error:
        log.warning("Could not find out whether the DAG %s is paused: %s", ti.dag_id, error)
        return False


def stop_if_paused(coordinator: Coordinator, ti: Any) -> None:
    """Stop the job's checkpoints if its DAG is paused: pending ones end, queued requests are dropped (semantics S1)."""
    if dag_is_paused(ti):
        coordinator.pause()
        log.info("The DAG is paused: what is pending has ended, and goes on when the DAG is no longer paused")


def start_unless_paused(coordinator: Coordinator, ti: Any) -> bool:
    """Start a job's checkpoints again if a pause of them is over (semantics S1); False while the DAG is paused."""
    if dag_is_paused(ti):
        # `airflow dags test` runs the tasks of a paused DAG too, one after the other: without this line it would wait
        # silently.
        log.info("This task waits while the DAG is paused; type: airflow dags unpause %s", ti.dag_id)
        return False
    coordinator.unpause()
    log.info("The DAG is no longer paused: the job goes on")
    return True
