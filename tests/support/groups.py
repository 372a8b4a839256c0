"""DAGs with one group, for tests of what Airflow parses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.spark import Epoch

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


class CountingStage(SparkEpochOperator):
    """A stage whose driver counts the job's epochs, in this process."""

    def _submit(self, context: Any, drivers: Any, settings: Any, answer: Any, run: Any) -> None:
        store = settings.hook().open_store()
        handover, _ = Coordinator(store, settings.job).files.read(Handover, answer.handover_key)
        with Epoch(None, store, handover) as epoch:  # type: ignore[arg-type]  # no DataFrames, no session
            epoch.put("epochs", epoch.get("epochs", 0) + 1)
        self.ended_here = True
