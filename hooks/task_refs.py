"""Airflow's tasks: their names, states and tries, and the request that runs some of them again.

The API's own defaults are wide: without a run id it clears every run, without task ids the whole run, and without
`run_on_latest_version` perhaps with other code than the run began with. So each field that widens is always sent, so
that the request cannot affect anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import DagRunState, TaskInstanceState

from ..checkpoint.errors import InvalidConfigError
from ..storage.names import shorten
from ..storage.records import dataclass
from . import versions

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

MAX_NOTE = 1000
"""Maximum length of a note in Airflow, in characters."""


@dataclass(frozen=True, slots=True, order=True)
class TaskRef:
    """One task of a DAG run, as Airflow names it."""

    task_id: str
    map_index: int = -1
    """Instance of a mapped task; -1 for a task that is not mapped."""

    @classmethod
    def of(cls, ti: Any) -> TaskRef:
        """Return the task of a task instance, which may have no map index."""
        return cls(ti.task_id, -1 if ti.map_index is None else ti.map_index)

    @property
    def name_in_states(self) -> str:
        """Key in Airflow's answer to `get_task_states`, where instance 1 of `b` is called like the task `b_1`."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"

    def __str__(self) -> str:
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


def failed_body(run_id: str, tasks: Iterable[TaskRef], note: str, *, dry_run: bool) -> dict[str, Any]:
    """Return the body that clears those of these tasks, and of those behind them, that failed; else as `clear_body`."""
    widened = {"dry_run": dry_run, "only_failed": True, "include_downstream": True}
    return {**clear_body(run_id, tasks, note), **widened}


def clear_body(run_id: str, tasks: Iterable[TaskRef], note: str) -> dict[str, Any]:
    """Return the body of `POST /dags/{dag}/clearTaskInstances` that clears these tasks of this run, in any state.

    There is at least one task. A mapped task needs its index: the id alone would mean all its instances. The note,
    which the page shows at each task instance, is cut after 1,000 characters. Airflow 3.2 takes none.

    Raises:
        InvalidConfigError: no run, no task, or a task without an id; such a body would clear more than intended.
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
        # Queues an ended run again: otherwise the cleared tasks would never run.
        "reset_dag_runs": True,
        "include_upstream": False,
        "include_downstream": False,
        "include_future": False,
        "include_past": False,
        "run_on_latest_version": False,
        # Stops a running sibling (semantics F3).
        "prevent_running_task": False,
        **({"note": note[:MAX_NOTE]} if versions.TAKES_NOTES else {}),
    }


GIVEN_UP = frozenset({TaskInstanceState.FAILED, TaskInstanceState.UPSTREAM_FAILED})
"""Airflow has given such a task up, or it never began; a clear would renew its retries forever."""

ENDED = GIVEN_UP | {TaskInstanceState.SUCCESS, TaskInstanceState.SKIPPED, TaskInstanceState.REMOVED}
"""No try of such a task follows by itself."""

AT_WORK = frozenset({TaskInstanceState.RUNNING, TaskInstanceState.DEFERRED})
"""Such a task has a process, or waits in the triggerer."""

ENDED_RUN = frozenset({DagRunState.SUCCESS, DagRunState.FAILED})
"""No task of such a DAG run works on its epoch any longer."""


# Facts from Airflow about a try of a task: what started it, and why Airflow ends a running one.


def is_asked_for(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> bool:
    """Return whether a try follows a clear, and not Airflow's own decision to retry.

    A clear renews the budget: it sets `max_tries` to the tries so far plus `retries`. So the first try after it has the
    whole budget left, as a task's very first try has.
    """
    return 1 < ti.try_number == ti.max_tries - (retries or 0) + 1


def is_retry(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> bool:
    """Return whether a try follows a failed one by Airflow's own decision."""
    return ti.try_number > 1 and not is_asked_for(ti, retries)


def first_since_clear(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> int:
    """Return the number of the first try after the task's newest clear; 1 if it was never cleared.

    Airflow does not renew the budget of a task that is cleared while it runs. Such a clear goes unnoticed, and the
    number refers to the clear before. No clear is noticed either after the DAG file has allowed more retries; after it
    has allowed fewer, a retry may count as the first try after a clear.
    """
    first = ti.max_tries - (retries or 0) + 1
    return first if 1 < first <= ti.try_number else 1


def came_back(context: Context) -> bool:
    """Return whether this try has begun before and rescheduled itself: Airflow counts both as one try."""
    return context.get("task_reschedule_count", 0) > 0


_ENDED = {
    "success": "a person marked its task as a success",
    "failed": "its task counts as failed: a person marked it or its run as failed, or its heartbeats did not arrive",
    "skipped": "the DAG run took longer than its dagrun_timeout, or a person marked the task as skipped",
    "restarting": "a person cleared its task",
    "scheduled": "a person cleared its task",
    "queued": "a person cleared its task",
    "up_for_retry": "its heartbeats did not arrive at Airflow in time",
    "removed": "the DAG file no longer has its task",
    "running": "its machine or pod was shut down",
}
"""The event behind each state in which Airflow holds a task whose process it ends (from the source of 3.3)."""


def why_ended(ti: RuntimeTaskInstanceProtocol) -> str:
    """Return why Airflow ended a running try, as far as the task's state at that time says."""
    name = TaskRef.of(ti).name_in_states
    try:
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id]).get(ti.run_id, {})
    except Exception as error:  # noqa: BLE001 - the try ends anyway, and this is only its description
        return f"Airflow told it to end, and does not say why: {error}"
    if name not in states:
        return "Airflow told it to end: its run was deleted"
    # Airflow clears a task by taking its state away.
    return f"Airflow told it to end: {_ENDED.get(states[name] or 'restarting', f'its task is {states[name]}')}"
