"""Keeps a run from blocking the last run of a job that is being stopped, in a DAG with one run at a time (P2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import DAG

from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.errors import RefusedError
from ...tasks.dag_runs import is_queued

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator


def make_room(dag: DAG | None, coordinator: Coordinator, ti: RuntimeTaskInstanceProtocol) -> None:
    """Refuse to wait for the job's last run if Airflow would start it only after the waiting run ends.

    Both would wait until the stop is given up. The last run is queued because a drain made it, or because it was
    cleared. If the DAG may have several runs, another one of them may end.

    Args:
        dag: the DAG of the task that is about to wait for the end of a stop.
        coordinator: the job's coordinator.
        ti: the task instance.

    Raises:
        RefusedError: the DAG may have no other run, and the last run is queued.
    """
    stopping = coordinator.head().kept_from(epoch_name(ti.run_id))
    if dag is None or dag.max_active_runs != 1 or stopping is None or not stopping.waits:
        return
    last = run_id_of(stopping.epoch)
    if is_queued(ti, ti.dag_id, last):
        raise RefusedError(
            "the job is being stopped, and the run that is its last one waits for the only place of the DAG "
            "(max_active_runs=1), which this run has. Clear this run when the job has been resumed",
            code="last_run_blocked",
            job=coordinator.job,
            epoch=ti.run_id,
            last_run=last,
        )
