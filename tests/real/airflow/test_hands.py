"""People's acts in Airflow's pages, on a real Airflow: clear, mark, delete, rewind.

After each the state holds every epoch that completed, once.
"""

from __future__ import annotations

import shlex
import subprocess

import psutil
import pytest

from airflow_cairn.checkpoint.documents import layout
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import kill_driver
from tests.real.airflow.store import JobStore

pytestmark = pytest.mark.e2e

TRIGGER, FIRST, SECOND, WAIT = (
    f"epoch.{task}" for task in ("trigger_checkpoint", "first", "second", "wait_for_checkpoint")
)


def run(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    """Run an epoch to its end."""
    airflow.api.trigger(dag_id, run_id)
    ended(airflow, dag_id, run_id, "success")


def ended(airflow: AirflowHome, dag_id: str, run_id: str, state: str) -> None:
    airflow.api.wait_for_run(dag_id, run_id)
    assert airflow.api.run_state(dag_id, run_id) == state, airflow.api.explain(dag_id, run_id)


def under_way(airflow: AirflowHome, gates: Gates, dag_id: str, run_id: str) -> psutil.Process:
    """Start a run whose second stage stands still; gives the driver."""
    gates.hold(dag_id, run_id, 1, "second")
    airflow.api.trigger(dag_id, run_id)
    return gates.wait_until_reached(dag_id, run_id, 1, "second")


def gone(driver: psutil.Process) -> bool:
    return not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE


def mark(airflow: AirflowHome, dag_id: str, run_id: str, state: str, task_id: str | None = None) -> None:
    """Set the state of a task, or of a whole run, as the page does."""
    path = f"/dags/{dag_id}/dagRuns/{run_id}"
    if task_id is None:
        airflow.api.request("PATCH", path, json={"state": state})
    else:
        airflow.api.request("PATCH", f"{path}/taskInstances/{task_id}", json={"new_state": state})


def clear_run(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    """Clear a whole run, as the page does."""
    airflow.api.request("POST", f"/dags/{dag_id}/dagRuns/{run_id}/clear", json={"dry_run": False})


def states(airflow: AirflowHome, dag_id: str, run_id: str) -> dict[str, str | None]:
    return {task.task_id: task.state for task in airflow.api.task_instances(dag_id, run_id)}


def folded(storage: str, dag_id: str) -> list[str]:
    """Give the runs that the newest checkpoint holds, which both stages agree on; nothing lies about."""
    job = JobStore(storage, dag_id)
    first, second = (job.value(stage, "folded") for stage in ("first", "second"))
    assert first == second
    job.coordinator.clean()
    assert job.unreferenced() == []
    found: list[str] = first
    return found


@pytest.mark.soak  # row 19 is cleared by hand; test_scenarios.py clears what has completed
@pytest.mark.side_by_side
def test_what_failed_is_cleared(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics F2, F5: a failed task alone: what had acknowledged stays. Then a whole run: all of it runs again."""
    api, dag_id = airflow.api, "hands_clear"
    kill_driver(under_way(airflow, gates, dag_id, "e1"))
    ended(airflow, dag_id, "e1", "failed")
    api.clear(dag_id, "e1", [SECOND, WAIT])
    ended(airflow, dag_id, "e1", "success")
    assert api.task(dag_id, "e1", FIRST).try_number == 1

    kill_driver(under_way(airflow, gates, dag_id, "e2"))
    ended(airflow, dag_id, "e2", "failed")
    clear_run(airflow, dag_id, "e2")
    ended(airflow, dag_id, "e2", "success")
    assert "already acknowledged, nothing to submit" not in api.log(dag_id, "e2", FIRST, 2)
    history = JobStore(storage, dag_id).coordinator.head().history
    assert any("its task was cleared after the stage had acknowledged" in entry.detail for entry in history)
    assert folded(storage, dag_id) == ["e1", "e2"]


@pytest.mark.side_by_side
def test_what_runs_is_marked(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics C1, D3, F5: marked a success, it runs again, as nothing of it is stored; marked failed, not."""
    api, dag_id = airflow.api, "hands_mark"
    job = JobStore(storage, dag_id)
    driver = under_way(airflow, gates, dag_id, "e1")
    mark(airflow, dag_id, "e1", "success", SECOND)
    wait_until(lambda: gone(driver), 600, "the driver of the marked task to end")
    ended(airflow, dag_id, "e1", "success")
    assert api.task(dag_id, "e1", SECOND).try_number == 2
    assert "Cleared, to run again: second" in api.log(dag_id, "e1", WAIT)
    assert job.outcomes() == [(1, 1, "JOB_FAILOVER_REGION"), (2, 2, "COMPLETED")]
    assert folded(storage, dag_id) == ["e1"]

    driver = under_way(airflow, gates, dag_id, "e2")
    mark(airflow, dag_id, "e2", "failed", SECOND)
    ended(airflow, dag_id, "e2", "failed")
    wait_until(lambda: gone(driver), 600, "the driver of the marked task to end")
    run(airflow, dag_id, "e3")
    assert folded(storage, dag_id) == ["e1", "e3"]
    clear_run(airflow, dag_id, "e2")
    ended(airflow, dag_id, "e2", "success")
    assert folded(storage, dag_id) == ["e1", "e3", "e2"]


@pytest.mark.side_by_side
def test_a_run_is_deleted(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics T1, D3: nobody is left to end its checkpoint, so the next run does."""
    dag_id = "hands_delete"
    driver = under_way(airflow, gates, dag_id, "e1")
    mark(airflow, dag_id, "e1", "failed")  # the page deletes no run that is running
    airflow.api.request("DELETE", f"/dags/{dag_id}/dagRuns/e1")
    wait_until(lambda: gone(driver), 600, "the driver of the deleted run to end")
    run(airflow, dag_id, "e2")
    head = JobStore(storage, dag_id).coordinator.head()
    assert [entry.epoch for entry in head.completed] == [layout.epoch_name("e2")]
    assert folded(storage, dag_id) == ["e2"]


@pytest.mark.soak  # test_scenarios.py clears one, tests/protocol/advice/ types the rewind
@pytest.mark.side_by_side
def test_completed_runs_are_cleared_and_the_job_is_rewound(airflow: AirflowHome, storage: str) -> None:
    """semantics T9, R1: cleared alone they are skipped and say what to type; after that they run again, in order."""
    api, dag_id = airflow.api, "hands_rewind"
    for run_id in ("e1", "e2", "e3"):
        run(airflow, dag_id, run_id)
    before = JobStore(storage, dag_id).coordinator.head()
    clear_run(airflow, dag_id, "e2")
    ended(airflow, dag_id, "e2", "success")
    # The process that comes after the group may go on: the checkpoint is there.
    assert states(airflow, dag_id, "e2") == {
        TRIGGER: "success",
        **dict.fromkeys((FIRST, SECOND), "skipped"),
        WAIT: "success",
    }
    log = api.log(dag_id, "e2", FIRST, api.task(dag_id, "e2", FIRST).try_number)
    assert "epoch e2 is completed: checkpoint 2 holds it. It is not run again" in log
    assert JobStore(storage, dag_id).coordinator.head() == before

    api.clear(dag_id, "e3", [SECOND])
    api.wait_for_task(dag_id, "e3", SECOND, states={"skipped"})
    said = api.log(dag_id, "e3", SECOND, 2)
    assert f"cairn rewind {dag_id} --to 2 --storage {storage}" in said

    command = next(part for part in log.split("`") if part.startswith("cairn rewind"))
    typed = [str(VENV / "bin" / "cairn"), *shlex.split(command)[1:], "--yes"]
    done = subprocess.run(typed, capture_output=True, text=True, check=True)
    assert "in this order:\n  e2\n  e3\n" in done.stdout
    # Runs are cleared one after the other: of two at once Airflow may start the later one first (measured).
    for run_id in ("e2", "e3"):
        clear_run(airflow, dag_id, run_id)
        ended(airflow, dag_id, run_id, "success")
        assert set(states(airflow, dag_id, run_id).values()) == {"success"}
    job = JobStore(storage, dag_id)
    assert [entry.id for entry in job.coordinator.head().completed] == [1, 4, 5]
    assert folded(storage, dag_id) == ["e1", "e2", "e3"]
