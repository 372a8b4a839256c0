"""A job that is being stopped waits for a run, and a DAG may have but one at a time (semantics P2)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRuntimeError

from ..checkpoint import Coordinator
from ..checkpoint.errors import CheckpointError
from ..checkpoint.layout import epoch_name, run_id_of
from ..storage.errors import ErrorKind

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

log = logging.getLogger(__name__)


class LastRunBlockedError(CheckpointError):
    """The run has the only place of its DAG, and the job's last run needs it, after which it stops (semantics P2)."""

    kind = ErrorKind.CONFLICT


def make_room(dag: DAG | None, coordinator: Coordinator, ti: RuntimeTaskInstanceProtocol) -> None:
    """Refuse to wait for the job's last run where Airflow starts that only in the place of the run that waits.

    Both would stand still until the stop is given up. The last run is queued where it was made to drain the job, or was
    cleared. Where the DAG may have more runs than one, another one of them may end.

    Args:
        dag: of the task that is about to wait for the end of a stop.
        coordinator: of the job.
        ti: the task.

    Raises:
        LastRunBlockedError: the DAG may have no other run, and the last one is queued.
    """
    stopping = coordinator.head().kept_from(epoch_name(ti.run_id))
    if dag is None or dag.max_active_runs != 1 or stopping is None or not stopping.waits:
        return
    last = run_id_of(stopping.epoch)
    if _is_queued(ti, last):
        raise LastRunBlockedError(
            "the job is being stopped, and the run that is its last one waits for the only place of the DAG "
            "(max_active_runs=1), which this run has. Clear this run when the job has been resumed",
            job=coordinator.job,
            epoch=ti.run_id,
            last_run=last,
        )


def _is_queued(ti: RuntimeTaskInstanceProtocol, run_id: str) -> bool:
    """Tell whether a run of the task's DAG is queued; one that cannot be asked about, or is not made yet, is not."""
    try:
        return ti.get_dagrun_state(ti.dag_id, run_id) == "queued"
    except AirflowRuntimeError as error:
        log.info("the last run %s of %s could not be asked about: %s", run_id, ti.dag_id, error)
        return False
