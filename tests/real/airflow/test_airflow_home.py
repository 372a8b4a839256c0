"""Airflow is real: it starts, runs a DAG, survives the loss of a component, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.ports import is_listening
from scripts.harness.wait import wait_until

pytestmark = pytest.mark.e2e

_DAG = """
import os
from datetime import timedelta
from airflow.sdk import dag, task
from airflow.providers.standard.sensors.filesystem import FileSensor

@dag(schedule=None)
def trivial():
    @task(retries=1, retry_delay=timedelta(0))
    def give(params=None):
        return os.environ["CAIRN_TEST_WORD"]

    FileSensor(task_id="wait", filepath=os.environ["AIRFLOW_HOME"] + "/go", fs_conn_id="fs",
               poke_interval=1, deferrable=True) >> give()

trivial()
"""


def _everything_of(home: AirflowHome) -> list[int]:
    """Look for the home's processes in a way that the harness does not use: by their working folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(home.home)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def home() -> Iterator[AirflowHome]:
    env = {"CAIRN_TEST_WORD": "stone", "AIRFLOW_CONN_FS": "fs:///"}
    with AirflowHome(env=env, heartbeat_timeout=10) as home:
        (home.dags_folder / "trivial.py").write_text(_DAG)
        home.api.wait_for_dag("trivial")
        home.api.unpause("trivial")
        yield home


def test_a_run_goes_through_while_the_triggerer_is_replaced(home: AirflowHome) -> None:
    print(f"started in {home.started_in_s:.1f} s")
    home.api.trigger("trivial", "r+1:a")
    home.api.wait_for_task("trivial", "r+1:a", "wait", states={"deferred"})
    home.kill_component("triggerer")
    (home.home / "go").touch()
    home.start_component("triggerer")
    assert home.api.wait_for_run("trivial", "r+1:a") == "success"
    assert home.api.xcom("trivial", "r+1:a", "give") == "stone"
    assert home.api.xcoms("trivial", "r+1:a", "give") == {"return_value": "stone"}
    assert [task.try_number for task in home.api.task_instances("trivial", "r+1:a")] == [1, 1]
    assert "stone" in home.api.log("trivial", "r+1:a", "give")
    assert home.api.import_errors() == []


def test_cleared_tasks_run_again(home: AirflowHome) -> None:
    (home.home / "go").touch()
    home.api.trigger("trivial", "r2", conf={"x": 1})
    assert home.api.wait_for_run("trivial", "r2") == "success"
    home.api.clear("trivial", "r2", ["give"])
    wait_until(lambda: home.api.task("trivial", "r2", "give").try_number == 2, 600, "the second try")
    assert home.api.wait_for_run("trivial", "r2") == "success"
    assert [one.try_number for one in home.api.tries("trivial", "r2", "give")] == [1, 2]
    assert home.api.task("trivial", "r2", "wait").try_number == 1


def test_nothing_is_left_even_if_the_scheduler_was_shot_alone(home: AirflowHome) -> None:
    """The last one: it ends the Airflow that the others share."""
    assert _everything_of(home)
    home.process("scheduler").kill()
    home.stop()
    assert _everything_of(home) == []
    assert not home.home.exists()
    assert not any(is_listening(port) for port in vars(home.ports).values())
