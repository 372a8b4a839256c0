"""Reach of a clear on a real Airflow, with the least rights that can do it. Nothing runs here, and no Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from airflow_cairn.checkpoint.errors import AirflowApiError, AirflowApiRefusedError
from airflow_cairn.hooks.airflow_api import AirflowApiHook
from airflow_cairn.hooks.task_refs import TaskRef
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import CLEARS, LOOKS

pytestmark = pytest.mark.e2e

DAG_ID = "clearing"
RUNS = ("r1", "r2", "r3")
TASKS = [*map(TaskRef, ("first", "epoch.a", "epoch.b", "last")), *(TaskRef("each", index) for index in range(3))]
BATCH = 50

Seen = dict[TaskRef, tuple[str, str | None, int]]


@pytest.fixture(scope="module")
def paused(airflow: AirflowHome) -> AirflowHome:
    """Three runs whose task instances stand still, some of them ended."""
    airflow.api.pause(DAG_ID)
    for run in RUNS:
        airflow.api.trigger(DAG_ID, run)
        for task, state in (("first", "success"), ("epoch.a", "failed")):
            path = f"/dags/{DAG_ID}/dagRuns/{run}/taskInstances/{task}"
            airflow.api.request("PATCH", path, json={"new_state": state})
    return airflow


@pytest.fixture
def hook(paused: AirflowHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowApiHook]:
    """The hook as a user who may clear, and no more."""
    with _as(CLEARS, paused, monkeypatch) as made:
        yield made


def _as(user: str, airflow: AirflowHome, monkeypatch: pytest.MonkeyPatch) -> AirflowApiHook:
    address = airflow.url.replace("://", f"://{user}:{airflow.passwords[user]}@")
    monkeypatch.setenv("AIRFLOW_CONN_CAIRN_AIRFLOW_API", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return AirflowApiHook()


def look(airflow: AirflowHome, run: str) -> Seen:
    """Give id, state and try of every task instance of a run."""
    found = airflow.api.task_instances(DAG_ID, run)
    return {TaskRef(ti.task_id, ti.map_index): (ti.raw["id"], ti.state, ti.try_number) for ti in found}


@pytest.mark.parametrize("batches", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_clears_leave_other_runs_alone(paused: AirflowHome, hook: AirflowApiHook, batches: int) -> None:
    """Every body changes the ids of the tasks that it names, in its own run, and nothing else anywhere."""
    choice = random.Random(5)
    others = {run: look(paused, run) for run in ("r1", "r3")}
    for _ in range(batches):
        before, named = look(paused, "r2"), set()
        assert set(before) == set(TASKS)
        kept = set(choice.sample(TASKS, 2))
        for _ in range(BATCH):
            tasks = choice.sample([task for task in TASKS if task not in kept], choice.randint(1, 3))
            named.update(tasks)
            strange = [TaskRef("nowhere"), TaskRef("each", 99), TaskRef("r1"), TaskRef("each%")]
            hook.clear(DAG_ID, "r2", [*tasks, *choice.sample(strange, choice.randint(0, 2))], "fuzz")
        after = look(paused, "r2")
        assert {task for task in TASKS if after[task][0] != before[task][0]} == named
        assert {task: after[task] for task in kept} == {task: before[task] for task in kept}
    assert {run: look(paused, run) for run in others} == others


def test_a_run_that_is_not_there(hook: AirflowApiHook) -> None:
    with pytest.raises(AirflowApiError, match="Dag Run id nowhere not found"):
        hook.clear(DAG_ID, "nowhere", [TaskRef("first")], "")
    assert hook.task_facts(DAG_ID, "nowhere", TaskRef("first")) is None


def test_a_cleared_task_has_another_id(paused: AirflowHome, hook: AirflowApiHook) -> None:
    """semantics F5: compare-and-clear rests on the id; the note shows on the page."""
    before = hook.task_facts(DAG_ID, "r1", TaskRef("first"))
    hook.clear(DAG_ID, "r1", [TaskRef("first")], "Cairn: why")
    after = hook.task_facts(DAG_ID, "r1", TaskRef("first"))
    assert before is not None
    assert after is not None
    assert before.id != after.id
    assert (before.state, after.state) == ("success", None)
    assert paused.api.task(DAG_ID, "r1", "first").raw["note"] == "Cairn: why"


def test_who_only_looks_may_not_clear(paused: AirflowHome, monkeypatch: pytest.MonkeyPatch) -> None:
    with _as(LOOKS, paused, monkeypatch) as hook:
        before = hook.task_facts(DAG_ID, "r1", TaskRef("epoch.a"))
        with pytest.raises(AirflowApiRefusedError, match="the right to read and edit task instances"):
            hook.clear(DAG_ID, "r1", [TaskRef("epoch.a")], "")
        assert hook.task_facts(DAG_ID, "r1", TaskRef("epoch.a")) == before


MISSING = """
from airflow.sdk import DAG
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

with DAG("missing", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///x", airflow_api_conn_id="missing"):
    first = SparkEpochOperator(task_id="first", application="x.py")
    first >> Pipelined() >> SparkEpochOperator(task_id="second", application="x.py")
"""


@pytest.mark.soak  # tests/unit/operators/graph/test_clearing.py
def test_the_author_learns_that_the_connection_is_missing(airflow: AirflowHome) -> None:
    """By the page's import errors: the dag processor has asked for the connection."""
    file = airflow.dags_folder / "missing.py"
    file.write_text(MISSING)
    try:
        (error,) = wait_until(
            lambda: [each for each in airflow.api.import_errors() if "missing.py" in each],
            300,
            "an import error of missing.py",
            details=lambda: ", ".join(airflow.api.dag_ids()),
        )
    finally:
        file.unlink()
    assert "the stages first, second form one region" in error
    assert "or write airflow_api_conn_id=None to clear manually" in error
