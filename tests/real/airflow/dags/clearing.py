"""Tasks that are cleared over and over and never run: the test pauses the DAG first."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup, task


@task
def each(number: int) -> int:
    """Stand for a mapped task."""
    return number


with DAG("clearing", schedule=None, max_active_runs=4, tags=["clearing"]):
    first = EmptyOperator(task_id="first")
    with TaskGroup("epoch"):
        a, b = EmptyOperator(task_id="a"), EmptyOperator(task_id="b")
    mapped = each.expand(number=[1, 2, 3])
    first >> a >> b >> mapped >> EmptyOperator(task_id="last")
