"""A day is read once, and none is left out by a pause, on a real Airflow."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta

import httpx
import pendulum
import pytest

from airflow_cairn.checkpoint import TriggerRequest
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.read_windows import ReadWindow
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV
from tests.real.airflow.store import JobStore
from tests.support.acking import ack_of

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

DAG_ID, FIRST = "read_once", "epoch.read"


def test_a_run_by_hand_inside_a_day_that_was_read_is_skipped(airflow: AirflowHome, storage: str) -> None:
    """semantics T8: no second fold of the day, and the log names the checkpoint and both ways on."""
    api, job = airflow.api, JobStore(storage, DAG_ID)
    api.unpause(DAG_ID)

    def two_days() -> bool:
        return [run["state"] for run in api.runs(DAG_ID)] == ["success", "success"]

    wait_until(two_days, 600, "two scheduled days")
    days = [(1, 1, "COMPLETED"), (2, 1, "COMPLETED")]
    assert job.outcomes() == days

    noon = datetime(2001, 1, 2, 12, tzinfo=UTC)
    api.trigger(DAG_ID, "by_hand", logical_date=noon)
    api.wait_for_run(DAG_ID, "by_hand")
    assert api.run_state(DAG_ID, "by_hand") == "success", api.explain(DAG_ID, "by_hand")
    assert api.task(DAG_ID, "by_hand", FIRST).state == "skipped"
    said = api.log(DAG_ID, "by_hand", FIRST)
    read = "checkpoint 1 has read 2001-01-01T00:00:00+00:00 to 2001-01-02T00:00:00+00:00"
    for text in ("the run by_hand is skipped", read):
        assert text in said
    assert job.outcomes() == days, "the state is what it was"

    type_found(airflow, r"trigger a run that reads it again by `cairn (checkpoint [^`]+ --read-again)`", said)
    wait_until(lambda: len(job.outcomes()) > 2, 600, "the day to be read again")
    (again,) = (run for run in api.runs(DAG_ID) if run["dag_run_id"].startswith("cairn__"))
    api.wait_for_run(DAG_ID, again["dag_run_id"])
    assert job.outcomes() == [*days, (3, 1, "COMPLETED")], "asked for, it is read once more"
    assert datetime.fromisoformat(again["data_interval_start"]) == datetime(2001, 1, 1, tzinfo=UTC)


@pytest.mark.soak  # tests/protocol/advice/ types the command
def test_the_days_of_a_pause_are_read_by_the_command_in_the_log(airflow: AirflowHome, storage: str) -> None:
    """semantics T12: without catchup the run after a pause is refused, until the runs of the command have succeeded."""
    api, dag_id, day = airflow.api, "after_a_pause", timedelta(days=1)
    job, midnight = JobStore(storage, dag_id), datetime.fromisoformat(pendulum.today("UTC").isoformat())
    before = ReadWindow(midnight - 4 * day, midnight - 3 * day)
    _read_before_the_pause(job, dag_id, before)
    api.unpause(dag_id)
    wait_until(lambda: api.runs(dag_id), 600, "the run after the pause")
    [late] = api.runs(dag_id)
    api.wait_for_run(dag_id, late["dag_run_id"])
    said = api.log(dag_id, late["dag_run_id"], FIRST)
    found = re.search(r"`(airflow backfill create [^`]+)`, and clear this run", said)
    assert found is not None, said
    airflow.command(*shlex.split(found[1])[1:])

    def missing() -> list[str]:
        return [run["state"] for run in api.runs(dag_id) if run["run_type"] == "backfill"]

    starts = datetime.fromisoformat(late["data_interval_start"])
    days = (starts - before.end) // day
    assert days >= 2
    wait_until(lambda: missing() == ["success"] * days, 600, f"{days} days to be read")
    api.clear(dag_id, late["dag_run_id"], [FIRST], downstream=True)
    api.wait_for_run(dag_id, late["dag_run_id"])
    assert api.run_state(dag_id, late["dag_run_id"]) == "success", api.explain(dag_id, late["dag_run_id"])
    completed = job.coordinator.head().completed
    windows = [each.window.window for each in completed if each.window is not None]
    assert windows == [ReadWindow(before.start + n * day, before.end + n * day) for n in range(days + 2)], "in order"


CHANGED = """
import json, os, pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow_cairn import CheckpointedTaskGroup, SparkEpochOperator

with (
    DAG(
        "changed_schedule",
        schedule=CronDataIntervalTimetable("{cron}", timezone="UTC"),
        start_date=pendulum.datetime(2001, 1, 1, tz="UTC"),
        end_date=pendulum.datetime({end}, tz="UTC"),
        catchup=True,
        max_active_runs=1,
        tags=["by_its_test"],
    ),
    CheckpointedTaskGroup("epoch", storage=os.environ["CAIRN_TEST_STORAGE"]),
):
    SparkEpochOperator(task_id="read", retries=0, **json.loads(os.environ["CAIRN_TEST_READER"]))
"""


@pytest.mark.soak  # tests/protocol/advice/ has a run of whose days another has read some, and types what it is told
def test_what_a_changed_schedule_leaves_is_read_by_the_command_in_the_log(airflow: AirflowHome, storage: str) -> None:
    """semantics T8: midnight becomes six, and the first run of the new schedule reaches back into what was read."""
    api, dag_id = airflow.api, "changed_schedule"
    file = airflow.dags_folder / f"{dag_id}.py"
    file.write_text(CHANGED.format(cron="0 0 * * *", end="2001, 1, 2"))
    api.wait_for_dag(dag_id)
    api.unpause(dag_id)

    def states() -> list[str]:
        return sorted(run["state"] for run in api.runs(dag_id))

    wait_until(lambda: states() == ["success"] * 2, 600, "two days")
    # Two runs are due by the new schedule: the one that reaches back, and the one after it.
    file.write_text(CHANGED.format(cron="0 6 * * *", end="2001, 1, 3, 6"))
    wait_until(
        lambda: states() == ["failed", *["success"] * 3],
        600,
        "the runs of the new schedule",
        details=lambda: str(states()),
    )
    (refused,) = (run for run in api.runs(dag_id) if run["state"] == "failed")
    assert datetime.fromisoformat(refused["data_interval_start"]) == datetime(2001, 1, 2, 6, tzinfo=UTC)
    said = api.log(dag_id, refused["dag_run_id"], FIRST)
    type_found(airflow, r"Trigger a run for what is left: `cairn (checkpoint [^`]+)`", said)
    wait_until(lambda: states() == ["failed", *["success"] * 4], 600, "what was left", details=lambda: str(states()))
    (left,) = JobStore(storage, dag_id).coordinator.head().completed[-1].read.windows
    assert left.window == ReadWindow(datetime(2001, 1, 1, tzinfo=UTC), datetime(2001, 1, 4, 6, tzinfo=UTC)), "no gap"
    # The run's whole interval is read by now, so the refused run ends as skipped.
    api.clear(dag_id, refused["dag_run_id"], [FIRST], downstream=True)
    wait_until(lambda: states() == ["success"] * 5, 600, "the refused run", details=lambda: str(states()))


def type_found(airflow: AirflowHome, command: str, said: str) -> None:
    """Type the command of `cairn` that a log names, as it stands there."""
    found = re.search(command, said)
    assert found is not None, said
    login = httpx.post(f"{airflow.url}/auth/token", json={"username": "admin", "password": airflow.password})
    env = {**os.environ, "CAIRN_AIRFLOW_URL": airflow.url, "CAIRN_AIRFLOW_TOKEN": login.json()["access_token"]}
    subprocess.run([VENV / "bin" / "cairn", *shlex.split(found[1])], env=env, check=True)


def _read_before_the_pause(job: JobStore, dag_id: str, window: ReadWindow) -> None:
    """Have the job read a day, as a run of it would have."""
    request = TriggerRequest(
        "before",
        Slice(window.start.isoformat(), window.end.isoformat()),
        (StageSpec("read"),),
        owner=Owner(dag_id, "before", "scenarios"),
    )
    job.coordinator.trigger(request)
    begun = job.coordinator.begin("before", "read", "a try")
    assert isinstance(begun, Submit)
    job.coordinator.acknowledge(ack_of(begun.handover))
    job.coordinator.complete(begun.handover.checkpoint)
