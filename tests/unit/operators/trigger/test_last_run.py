"""A run that waits where the job's last run needs its place (semantics P2)."""

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType, TaskDeferred
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.storage import open_store
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code

LAST = "cairn_drain__last"
NOT_MADE = AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"status_code": 404}))


def trigger(
    job: Job, run_id: str, last: str | BaseException, before: str = "", **dag: Any
) -> TriggerCheckpointOperator:
    """Trigger a run of a job that was told to stop."""
    with DAG("flights", schedule=None, **dag):
        task = TriggerCheckpointOperator(
            task_id="t", reads_window=False, storage=job.storage, stages=[StageSpec("routes")]
        )
    task.execute(context(Ti(run_id=run_id, states={LAST: last, "r2": before, "r3": "failed"})))
    return task


@pytest.fixture
def stop(job: Job, tmp_path: Path) -> Any:
    """Tell the job to stop, with or without a last run."""

    def ask(drain: str | None) -> None:
        job.complete("r1")
        last = None if drain is None else epoch_name(drain)
        wish = SavepointRequest(f"file://{tmp_path / 'kept'}", "x", stop=True, drain=last)
        if last is None:
            job.trigger("r2")
        assert job.coordinator.savepoint(wish, open_store).waits

    return ask


def test_the_only_place_is_left_to_the_last_run(job: Job, stop: Any) -> None:  # semantics P2
    stop(LAST)
    with raises_code("last_run_blocked", match=rf"Clear this run when.*epoch=`r3` last_run=`{LAST}`") as caught:
        trigger(job, "r3", "queued", max_active_runs=1)
    task = trigger(job, LAST, "running", max_active_runs=1)
    assert [entry.epoch for entry in job.coordinator.head().pending] == [epoch_name(LAST)]
    assert task.retry_policy is not None
    assert task.retry_policy.evaluate(caught.value, 1, 3).action is RetryAction.FAIL


@pytest.mark.parametrize(
    ("last", "most"), [("queued", 2), ("running", 1), (NOT_MADE, 1)], ids=["places", "running", "not made"]
)
def test_a_run_that_is_in_nobodys_way_waits(job: Job, stop: Any, last: Any, most: int) -> None:  # semantics P2
    stop(LAST)
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", last, max_active_runs=most)


def test_so_it_is_where_the_run_that_was_under_way_is_cleared(job: Job, stop: Any) -> None:  # semantics P2
    stop(None)
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", "", before="running", max_active_runs=1)
    with raises_code("last_run_blocked"):
        trigger(job, "r3", "", before="queued", max_active_runs=1)
    job.complete("r2")
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", "", before="queued", max_active_runs=1)
