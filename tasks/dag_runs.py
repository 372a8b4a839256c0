"""What this deployment knows of a DAG run: a task may ask that, and so may a trigger (semantics W8, T2)."""

from __future__ import annotations

import logging
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError

from ..checkpoint.decisions.ownership import RunState
from ..checkpoint.documents.attempt import Owner
from .deployment import deployment

log = logging.getLogger("airflow_cairn")

ENDED = frozenset({"success", "failed"})
"""States of a DAG run in which no task works on its epoch any more."""

QUEUED = "queued"


def state_of(airflow: Any, owner: Owner) -> RunState:
    """Tell what this deployment knows of a DAG run; one that cannot be asked about counts as running.

    Args:
        airflow: who can ask for the states of DAG runs: a task instance that runs; in the triggerer its class.
        owner: the DAG run.
    """
    if owner.deployment != deployment():
        return RunState.UNKNOWN  # a run of the same id here would be another one
    try:
        state = airflow.get_dagrun_state(owner.dag_id, owner.run_id)
    except AirflowRuntimeError as error:
        detail = error.error.detail or {}
        if detail.get("status_code") == 404:
            if owner.deployment:
                log.info("the DAG run %s of %s is not known here: it was deleted", owner.run_id, owner.dag_id)
            else:
                log.warning(
                    "this Airflow does not know the DAG run %s of %s. It counts as running, because it may be another "
                    "deployment's; its checkpoint ends with its timeout. If you have deleted it, type: cairn adopt JOB "
                    "--dag %s --abort-pending",
                    owner.run_id,
                    owner.dag_id,
                    owner.dag_id,
                )
            return RunState.UNKNOWN
        log.warning("could not ask Airflow about the DAG run %s of %s: %s", owner.run_id, owner.dag_id, error)
        return RunState.RUNNING
    return RunState.ENDED if state in ENDED else RunState.RUNNING


def is_queued(airflow: Any, dag_id: str, run_id: str) -> bool:
    """Tell whether a DAG run is queued; one that cannot be asked about, or is not made yet, is not."""
    try:
        return bool(airflow.get_dagrun_state(dag_id, run_id) == QUEUED)
    except AirflowRuntimeError as error:
        log.info("could not ask Airflow about the run %s of %s: %s", run_id, dag_id, error)
        return False
