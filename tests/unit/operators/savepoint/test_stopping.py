"""Stopping a job with a savepoint from a DAG (semantics P2)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import AirflowApiError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.savepoints.savepoint_request import drain_run
from airflow_cairn.hooks.airflow_api import AirflowApiHook
from airflow_cairn.operators import StopWithSavepointOperator
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import Answer, Asked, airflow_api
from tests.support.errors import raises_code


@dataclass
class Dag:
    """One DAG, `flights`, as Airflow's API shows it."""

    paused: bool = False
    refuses: bool = False
    exists: bool = True
    runs: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        path, _, query = asked.path.removeprefix("/api/v2/dags/flights").partition("?")
        if self.refuses:
            return 403, {"detail": "Forbidden"}
        if not self.exists:
            return 404, {"detail": "The DAG was not found"}
        if (asked.method, path) == ("GET", ""):
            return 200, {"dag_id": "flights", "is_paused": self.paused}
        if (asked.method, path, query, asked.body) == ("PATCH", "", "update_mask=is_paused", {"is_paused": True}):
            self.paused = True
        elif (asked.method, path) == ("POST", "/dagRuns"):
            if asked.body["dag_run_id"] in self.runs:
                return 409, {"detail": "there is one"}
            self.runs.append(asked.body["dag_run_id"])
        elif asked.method != "GET" or path.removeprefix("/dagRuns/") not in self.runs:
            return 404, {"detail": "not found"}
        return 200, {"dag_id": "flights", "state": "running"}


@pytest.fixture
def dag(connections: Define) -> Iterator[Dag]:
    found = Dag()
    with airflow_api(found, connections):
        yield found


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'kept'}"


def operator(job: Job, target: str, **options: Any) -> StopWithSavepointOperator:
    return StopWithSavepointOperator(task_id="stop", storage=job.storage, job=job.name, target=target, **options)


def deferred(task: StopWithSavepointOperator) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as caught:
        task.execute(context(Ti(run_id="upgrade")))
    return caught.value


def woken(task: StopWithSavepointOperator) -> dict[str, Any]:
    """Go on once its trigger has seen that asking helps."""
    return task.execute_complete(context(Ti(run_id="upgrade")), {"status": "ask", "detail": "", "kind": None})


def stop(job: Job, target: str, **options: Any) -> dict[str, Any]:
    return operator(job, target, **options).execute(context(Ti(run_id="upgrade")))


def test_an_idle_job_stops_and_its_dag_is_paused(job: Job, target: str, dag: Dag, said: Said) -> None:
    job.complete("r1")
    found = stop(job, target)
    assert (found["epoch"], found["stopped"]) == ("r1", True)
    assert job.coordinator.head().stopped is Stopped.SHUTDOWN
    assert dag.paused
    assert "The job has stopped, and the DAG flights is paused" in said.text
    job.coordinator.resume()
    dag.paused = False
    assert stop(job, target)["stopped"] is False, "the task is cleared a week later"
    assert not dag.paused


def test_the_run_that_is_under_way_ends_first(job: Job, target: str, dag: Dag) -> None:
    job.trigger("r1")
    task = operator(job, target)
    deferred(task)
    assert not dag.paused
    job.complete("r1")
    found = woken(task)
    assert (found["epoch"], found["stopped"], dag.paused) == ("r1", True, True)


def test_if_it_fails_the_job_and_its_dag_go_on(job: Job, target: str, dag: Dag) -> None:
    pending = job.trigger("r1")
    task = operator(job, target)
    deferred(task)
    job.coordinator.abort(pending, Reason.JOB_FAILURE, "the DAG run has ended")
    with raises_code("savepoint_failed", match="JOB_FAILURE"):
        woken(task)
    assert (job.coordinator.head().stopped, dag.paused) == (None, False)


def test_if_only_the_pause_fails_the_savepoint_is_named(job: Job, target: str, dag: Dag) -> None:
    job.complete("r1")
    dag.refuses = True
    with raises_code("dag_not_paused", match=rf"savepoint is kept.*savepoint=`{target}/savepoint-flights-"):
        stop(job, target)
    dag.refuses = False
    assert stop(job, target)["stopped"], "the next try"
    assert dag.paused


def test_without_a_connection_a_person_pauses_it(job: Job, target: str, said: Said) -> None:
    job.complete("r1")
    assert stop(job, target, airflow_api_conn_id=None)["stopped"]
    assert "pause its DAG manually" in said.text
    with pytest.raises(InvalidConfigError, match=r"drain needs the connection to Airflow's API.*task=`stop`"):
        operator(job, target, airflow_api_conn_id=None, drain=True)
    with pytest.raises(InvalidConfigError, match=r"drain must be True or False.*drain=`'yes'`"):
        operator(job, target, drain="yes")


def test_the_last_run_is_made_and_told(job: Job, target: str, dag: Dag) -> None:
    job.complete("r1")
    task = operator(job, target, drain=True)
    run = drain_run("flights/epoch.routes/upgrade")
    for _ in range(2):  # the task was retried
        deferred(task)
    assert dag.runs == [run]
    checkpoint = job.trigger(run)
    handover = job.begin(run)
    assert handover.draining
    job.acknowledge(handover)
    job.coordinator.complete(checkpoint)
    found = woken(task)
    assert (found["epoch"], found["stopped"]) == (epoch_name(run), True)


def test_a_last_run_that_could_not_start_holds_no_job(job: Job, target: str, dag: Dag) -> None:  # semantics P2
    job.complete("r1")
    dag.paused = True
    with pytest.raises(InvalidConfigError, match=r"the DAG is paused, so a run of it would not start.*dag=`flights`"):
        stop(job, target, drain=True)
    dag.paused, dag.exists = False, False
    with pytest.raises(AirflowApiError, match=r"status=`404`.*The DAG was not found"):
        stop(job, target, drain=True)
    assert job.coordinator.head().savepoints == ()


def test_the_next_try_has_a_last_run_of_its_own(job: Job, target: str, dag: Dag) -> None:  # semantics P2
    job.complete("r1")
    task = operator(job, target, drain=True)
    for _ in range(2):
        assert deferred(task).trigger.epoch == epoch_name(dag.runs[-1])
        job.coordinator.abort(job.trigger(dag.runs[-1]), Reason.JOB_FAILURE, "the DAG run has ended")
        with raises_code("savepoint_failed", match="JOB_FAILURE"):
            woken(task)
    assert len(dag.runs) == 2


def test_a_dag_that_is_not_there_is_an_error(dag: Dag) -> None:
    with AirflowApiHook() as api:
        assert api.start_run("flights", "a", 1_700_000_000_000)
        assert not api.start_run("flights", "a", 1_700_000_000_000)
        with pytest.raises(AirflowApiError, match="gave an unexpected answer"):
            api.pause("rides")
    assert dag.runs == ["a"]


def test_what_is_rendered() -> None:
    assert {"pause_dag_id", "storage", "job", "target", "request_id"} == set(StopWithSavepointOperator.template_fields)
