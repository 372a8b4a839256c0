"""What Airflow's numbers say of a try of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol


def is_asked_for(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> bool:
    """Tell whether a try follows a clear, and not Airflow's own decision to retry.

    A clear renews the budget: it sets `max_tries` to the tries so far plus `retries`. So the first try after it is the
    one that has the whole budget left, as a task's very first try has.
    """
    return 1 < ti.try_number == ti.max_tries - (retries or 0) + 1


def is_retry(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> bool:
    """Tell whether a try follows one that failed, by Airflow's own decision."""
    return ti.try_number > 1 and not is_asked_for(ti, retries)


def first_since_clear(ti: RuntimeTaskInstanceProtocol, retries: int | None) -> int:
    """Give the number of the first try after the task's newest clear; 1 where it was never cleared.

    Airflow renews no budget of a task that is cleared while it runs, so that clear is not seen, and the number is that
    of the clear before. Nor is any seen where the DAG file has allowed more retries since.
    """
    first = ti.max_tries - (retries or 0) + 1
    return first if 1 < first <= ti.try_number else 1


def came_back(context: Context) -> bool:
    """Tell whether this try has begun before, and put itself off: Airflow counts it as the same one."""
    return context.get("task_reschedule_count", 0) > 0
