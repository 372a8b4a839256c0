"""Facts from Airflow about a try of a task: what started it, and why Airflow ends a running one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hooks.clear_body import TaskRef

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol


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
