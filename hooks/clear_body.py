"""What is sent to Airflow to run tasks of one DAG run again: built so that it cannot reach anything else.

The API's own defaults are wide: without a run id it means every run, without task ids the whole run, and without
`run_on_latest_version` perhaps other code than the run began with. So each field that widens is always sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..checkpoint.errors import InvalidConfigError
from ..storage.names import shorten
from .versions import features

MAX_NOTE = 1000
"""Characters of a note that Airflow takes."""


@dataclass(frozen=True, slots=True, order=True)
class TaskRef:
    """One task of a DAG run, as Airflow names it."""

    task_id: str
    map_index: int = -1
    """Which instance of a mapped task; -1 for a task that is not mapped."""

    def __str__(self) -> str:
        """Name it as the page does."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


def failed_body(run_id: str, tasks: Iterable[TaskRef], note: str, *, dry_run: bool) -> dict[str, Any]:
    """Make the body that clears what has failed of these tasks, and of those behind them, as a user does on the page.

    Args:
        run_id: as of `clear_body`.
        tasks: as of `clear_body`.
        note: as of `clear_body`.
        dry_run: only say what would be cleared.

    Raises:
        InvalidConfigError: as of `clear_body`.
    """
    widened = {"dry_run": dry_run, "only_failed": True, "include_downstream": True}
    return {**clear_body(run_id, tasks, note), **widened}


def clear_body(run_id: str, tasks: Iterable[TaskRef], note: str) -> dict[str, Any]:
    """Make the body of `POST /dags/{dag}/clearTaskInstances` that clears these tasks of this run, whatever their state.

    Args:
        run_id: of the one DAG run; not empty.
        tasks: at least one. A mapped task needs its index: the id alone would mean all its instances.
        note: what the page shows at each task instance; cut after 1,000 characters. Airflow 3.2 takes none.

    Returns:
        The body, as JSON values.

    Raises:
        InvalidConfigError: no run, no task, or one without an id; such a body would clear more than was meant.
    """
    wanted = sorted(set(tasks))
    if not isinstance(run_id, str) or not run_id:
        raise InvalidConfigError("a clear without a run id would mean every run of the DAG", run=shorten(run_id))
    if not wanted:
        raise InvalidConfigError("a clear without task ids would mean the whole run", run=run_id)
    for task in wanted:
        if not isinstance(task.task_id, str) or not task.task_id or task.map_index < -1:
            raise InvalidConfigError(
                "a task to clear needs its id, and an index of at least 0 if it is mapped", task=shorten(task)
            )
    return {
        "dry_run": False,
        "dag_run_id": run_id,
        "task_ids": [task.task_id if task.map_index < 0 else [task.task_id, task.map_index] for task in wanted],
        "only_failed": False,
        "only_running": False,
        # A run that has ended is queued again, or what was cleared would never run.
        "reset_dag_runs": True,
        "include_upstream": False,
        "include_downstream": False,
        "include_future": False,
        "include_past": False,
        "run_on_latest_version": False,
        # A running sibling is to be stopped (semantics F3).
        "prevent_running_task": False,
        **({"note": note[:MAX_NOTE]} if features.TAKES_NOTES else {}),
    }
