"""DAGs with one group, for tests of what Airflow parses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator

STORAGE = "file:///lake/cairn"


@contextmanager
def epoch_group(**options: Any) -> Iterator[DAG]:
    """Open the group `epoch` of the DAG `flights` for its stages, with these options; gives the DAG."""
    with (
        DAG("flights", schedule=None) as dag,
        CheckpointedTaskGroup("epoch", **{"reads_window": False, "storage": STORAGE, **options}),
    ):
        yield dag


def stage(task_id: str, **options: Any) -> SparkEpochOperator:
    """Make a stage."""
    return SparkEpochOperator(task_id=task_id, application="a.py", **options)
