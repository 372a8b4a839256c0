"""A paused DAG: which tasks notice, and which let the job go on (semantics S1)."""

import asyncio
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowRuntimeError, ErrorType, TaskDeferred
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.tasks.dag_runs import dag_is_paused, start_unless_paused, stop_if_paused
from airflow_cairn.triggers import CheckpointTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import DagRun, Job, Ti, context
from tests.support.errors import raises_code
from tests.support.shut_down import shut_down

RUN = "scheduled__r1"


class Silent(Ti):
    """Airflow's API does not answer."""

    def get_dag(self, dag_id: str) -> Any:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"status_code": 500}))


def trigger(job: Job, ti: Ti) -> Any:
    task = TriggerCheckpointOperator(
        task_id="t", reads_window=False, storage=job.storage, job=job.name, stages=[StageSpec("routes")]
    )
    return task.execute(context(ti, dag_run=DagRun(run_type="scheduled")))


def sensor(job: Job, ti: Ti) -> Any:
    return CheckpointSensor(task_id="wait", storage=job.storage, job=job.name).execute(context(ti))


def test_a_task_that_has_done_its_work_notices(job: Job, said: Said) -> None:  # semantics S1
    job.trigger(RUN)
    stop_if_paused(job.coordinator, Ti(run_id=RUN))
    assert job.coordinator.head().stopped is None
    stop_if_paused(job.coordinator, Ti(run_id=RUN, paused=True))
    head = job.coordinator.head()
    assert (head.stopped, head.pending, head.history[-1].paused) == (Stopped.PAUSED, (), True)
    assert "The DAG is paused: what is pending has ended" in said.text


def test_an_airflow_that_does_not_say_stops_nothing(job: Job, said: Said) -> None:
    assert dag_is_paused(Silent()) is False
    assert "Could not find out whether the DAG flights is paused" in said.text
    job.coordinator.pause()
    assert start_unless_paused(job.coordinator, Silent()), "a task that starts is one of a DAG that is not paused"


def test_the_next_run_starts_the_job(job: Job, said: Said) -> None:  # semantics S1, T1
    job.complete("r0")
    job.coordinator.pause()
    with pytest.raises(AirflowRescheduleException):
        trigger(job, Ti(run_id=RUN, paused=True))
    assert job.coordinator.head().stopped is Stopped.PAUSED
    assert "This task waits while the DAG is paused; type: airflow dags unpause flights" in said.text
    assert trigger(job, Ti(run_id=RUN))["checkpoint"] == 2
    assert job.coordinator.head().stopped is None
    assert "The DAG is no longer paused: the job goes on" in said.text


def test_a_job_that_was_shut_down_is_not_started(job: Job) -> None:  # semantics S1, T1
    job.complete("r0")
    shut_down(job.coordinator)
    for paused in (True, False):
        with raises_code("trigger_declined", match=r"the job was shut down.* .CHECKPOINT_COORDINATOR_SHUTDOWN"):
            trigger(job, Ti(run_id=RUN, paused=paused))
    assert job.coordinator.head().stopped is Stopped.SHUTDOWN


def test_the_sensor_goes_on_after_the_pause(job: Job) -> None:  # semantics S1
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    job.coordinator.pause()
    with pytest.raises(TaskDeferred):
        sensor(job, Ti(run_id=RUN, paused=True))
    assert job.coordinator.head().completed == ()
    found = sensor(job, Ti(run_id=RUN))
    assert (found["checkpoint"], found["attempt"], found["acks"]) == (2, 2, 1)


def test_the_trigger_wakes_the_sensor(job: Job) -> None:
    """semantics S1: the sensor cannot ask Airflow itself; the task that the trigger wakes starts after the pause."""
    job.trigger(RUN)
    job.coordinator.pause()

    async def first() -> Any:
        waits = CheckpointTrigger(job.storage, job.name, epoch_name(RUN), poll_interval=0.01)
        return await asyncio.wait_for(anext(waits.run()), 300)

    event = asyncio.run(first())
    assert event.payload["status"] == "failed"
    assert event.payload["detail"] == "the DAG is paused"
