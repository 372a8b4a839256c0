"""The requests of a whole epoch: what its tasks, its drivers and the acts ask of the store."""

from itertools import pairwise
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint.views.stats import StoreCost, stats
from airflow_cairn.hooks.storage import CheckpointStorageHook
from airflow_cairn.operators import CheckpointedTaskGroup
from airflow_cairn.storage import open_store
from tests.support.airflow_stage import Job, Ti, context
from tests.support.groups import CountingStage
from tests.support.narrowing import expect
from tests.support.wrapped_stores import RecordingStore


@pytest.mark.parametrize("stages", [2, 4])
def test_an_epoch_asks_as_often_as_cairn_stats_says(job: Job, monkeypatch: pytest.MonkeyPatch, stages: int) -> None:
    store = RecordingStore(open_store(job.storage))
    monkeypatch.setattr(CheckpointStorageHook, "open_store", lambda *_, **__: store)
    monkeypatch.setattr(XCom, "set", lambda *_, **__: None)  # a stage triggers in place of the group's task
    with (
        DAG("flights", schedule=None) as dag,
        CheckpointedTaskGroup("epoch", reads_window=False, storage=job.storage, deferrable=False),
    ):
        for one, other in pairwise(
            [CountingStage(task_id=f"s{number}", application=__file__) for number in range(stages)]
        ):
            one >> other
    for run in range(4):  # until as many checkpoints are retained as ever will be
        store.requests.clear()
        for task in dag.topological_sort():
            if not task.inherits_from_empty_operator:
                begun: Any = dag.get_task(task.task_id).prepare_for_execution()
                begun.execute(context(Ti(run_id=f"r{run}", task_id=task.task_id), task=begun))
    head = job.coordinator.head()
    assert [entry.id for entry in head.completed] == [2, 3, 4]
    cost = expect(StoreCost, stats(head).store_cost)
    assert store.total == cost.reads + cost.writes, store.requests
