"""Whether the DAG is paused, and what that means for the job's checkpoints (semantics S1).

Airflow does not announce that a DAG was paused: no listener hears of it. Only a task may ask. So the tasks ask that run
during a pause, and the first ones after it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

if TYPE_CHECKING:
    from ..checkpoint import Coordinator


log = logging.getLogger("airflow_cairn")


def dag_is_paused(ti: Any) -> bool:
    """Ask Airflow whether the task's DAG is paused; where it does not say, it counts as running."""
    try:
        return bool(ti.get_dag(ti.dag_id).is_paused)
    except AirflowRuntimeError as error:
        log.warning("could not find out whether the DAG %s is paused: %s", ti.dag_id, error)
        return False


def stop_if_paused(coordinator: Coordinator, ti: Any) -> None:
    """Stop the job's checkpoints if its DAG is paused: what is pending ends, what waits is dropped (semantics S1)."""
    if dag_is_paused(ti):
        coordinator.pause()
        log.info("the DAG is paused: what is pending has ended, and goes on when the DAG is no longer paused")


def start_unless_paused(coordinator: Coordinator, ti: Any) -> bool:
    """Start the job's checkpoints again, if a pause has stopped them and is over (semantics S1).

    Returns:
        Whether the DAG is not paused.
    """
    if dag_is_paused(ti):
        # `airflow dags test` runs the tasks of a paused DAG too, one after the other: it would go on so without a word.
        log.info("this task waits while the DAG is paused; type: airflow dags unpause %s", ti.dag_id)
        return False
    coordinator.unpause()
    log.info("the DAG is no longer paused: the job goes on")
    return True
