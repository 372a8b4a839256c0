"""Savepoints every night, a stop in the middle of an epoch, and a drain, on a real Airflow and a real S3 server."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.savepoint_request import drain_run
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV
from tests.real.airflow.conftest import CLEARS, Gates
from tests.real.airflow.flights_jobs import Shell
from tests.real.airflow.lake import STORAGE, Lake
from tests.real.airflow.store import JobStore

pytestmark = pytest.mark.e2e

KEPT = "s3://savepoints/kept"
TAKE, DISPOSE = "take_savepoint", "dispose_of_old_ones"
FIRST_NIGHT = datetime(2020, 1, 1, tzinfo=UTC)
NIGHTS = 4
EPOCH_BEFORE = {1: "e1", 4: "e2"}
"""Nights before which the job completes an epoch."""
HOUR_S, WINDOW_HOURS = 3600, 6
HELD = "CHECKPOINT_COORDINATOR_SUSPEND"
COMPLETED = "COMPLETED"


def run(airflow: AirflowHome, dag_id: str, run_id: str, logical_date: datetime | None = None) -> None:
    """Run a DAG to its end."""
    airflow.api.trigger(dag_id, run_id, logical_date=logical_date)
    ended(airflow, dag_id, run_id)


def ended(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    airflow.api.wait_for_run(dag_id, run_id)
    assert airflow.api.run_state(dag_id, run_id) == "success", airflow.api.explain(dag_id, run_id)


def tries(airflow: AirflowHome, dag_id: str, run_id: str) -> dict[str, tuple[str | None, int]]:
    """Give state and try of each task of a run."""
    found = airflow.api.task_instances(dag_id, run_id)
    return {each.task_id.removeprefix("epoch."): (each.state, each.try_number) for each in found}


@pytest.mark.soak  # tests/unit/operators/savepoint/ takes and disposes; below one is taken here
@pytest.mark.side_by_side
def test_four_nights_leave_the_newest_three(airflow: AirflowHome, lake: Lake, shell: Shell) -> None:
    """semantics P1, P3: taken while the job's DAG is paused, whatever the job has done since the night before."""
    api, name = airflow.api, "savepoints_job"
    dag_id, job = f"{name}-savepoints", lake.job(name)
    made: list[str] = []
    epochs: list[str] = []
    for night in range(1, NIGHTS + 1):
        if night in EPOCH_BEFORE:
            api.unpause(name)
            epochs.append(EPOCH_BEFORE[night])
            run(airflow, name, epochs[-1])
            api.pause(name)
        date = FIRST_NIGHT + timedelta(days=night - 1)
        run_id = f"manual__{date.isoformat()}"
        run(airflow, dag_id, run_id, date)
        assert tries(airflow, dag_id, run_id) == {TAKE: ("success", 1), DISPOSE: ("success", 1)}
        made.append(api.xcom(dag_id, run_id, TAKE)["savepoint"])
        assert api.xcom(dag_id, run_id, DISPOSE) == {"disposed": made[-4:-3], "kept": {}}
        assert lake.folded(made[-1]) == {"keep": epochs}
        assert lake.folders(name) == set(made[-3:])
    listed = shell.told("savepoints", name, "--storage", STORAGE)["savepoints"]
    assert [(each["savepoint"], each["status"]) for each in listed] == [
        (each, COMPLETED) for each in reversed(made[-3:])
    ]
    assert len(set(made)) == len(made)
    # Ids come out of the job's sequence, and no savepoint is a checkpoint (semantics T5).
    assert job.outcomes() == [(1, 1, COMPLETED), (5, 1, COMPLETED)]
    assert [entry.id for entry in job.coordinator.head().savepoints] == [3, 4, 6]
    found = [shell.told("verify", savepoint) for savepoint in made[-3:]]
    assert [(each["whole"], each["run_id"]) for each in found] == [(True, "e1"), (True, "e1"), (True, "e2")]
    assert job.value("keep", "folded") == ["e1", "e2"]
    assert job.unreferenced() == []
    log = api.log(dag_id, "manual__2020-01-04T00:00:00+00:00", DISPOSE)
    assert f"Deleted: {made[-4]}" in log, log


@pytest.mark.side_by_side
def test_a_stop_in_the_middle_of_an_epoch(airflow: AirflowHome, gates: Gates, lake: Lake, s3_server: S3Server) -> None:
    """semantics P2, S1: the epoch finishes, the next one does not begin, and after the resume it goes on behind it."""
    api, name = airflow.api, "savepoints_stop"
    job = lake.job(name)
    gates.hold(name, "e1", 1, "second")
    api.trigger(name, "e1")
    gates.wait_until_reached(name, "e1", 1, "second")

    with cairn(airflow, s3_server, "stop", name, "--target", KEPT, "--wait", "--json") as stop:
        wait_until(lambda: job.coordinator.head().stopping(), 600, "the stop to hold the job")
        api.trigger(name, "e2")
        api.wait_for_task(name, "e2", "epoch.first", states={"deferred"})
        assert api.xcom(name, "e2", "epoch.trigger_checkpoint", "cairn_declined")["reason"] == HELD
        assert [each.epoch for each in job.coordinator.head().pending] == ["e1"]
        gates.release(name, "e1", 1, "second")
        out, err = stop.communicate(timeout=600)
    assert stop.returncode == 0, err
    stopped = json.loads(out)
    assert (stopped["stopped"], stopped["status"]) == ("shutdown", COMPLETED)
    assert api.request("GET", f"/dags/{name}")["is_paused"]
    assert lake.folded(stopped["savepoint"]) == {"first": ["e1"], "second": ["e1"]}
    assert job.outcomes() == [(1, 1, COMPLETED)]
    assert job.coordinator.head().pending == ()

    with cairn(airflow, s3_server, "resume", name, "--json") as resume:
        out, err = resume.communicate(timeout=600)
    assert resume.returncode == 0, err
    assert (json.loads(out)["was_stopped"], json.loads(out)["checkpoint"]) == ("shutdown", 1)
    api.unpause(name)
    for each in ("e1", "e2"):
        ended(airflow, name, each)
    once = dict.fromkeys(("trigger_checkpoint", "second", "wait_for_checkpoint"), ("success", 1))
    assert tries(airflow, name, "e1") == {**once, "first": ("success", 1)}
    found = tries(airflow, name, "e2")
    # The stage may have asked just before the DAG was paused: then the job had stopped, and another try has asked.
    assert found.pop("first") in [("success", number) for number in (1, 2, 3)]
    assert found == once
    assert job.outcomes() == [(1, 1, COMPLETED), (3, 1, COMPLETED)]
    assert [entry.restored_from for entry in job.coordinator.head().history] == [None, 1]
    assert job.runs() == ["e1", "e2"]
    assert [job.value(stage, "folded") for stage in ("first", "second")] == [["e1", "e2"]] * 2
    assert job.unreferenced() == []


@pytest.mark.soak  # test_page.py drains; the last window: tests/real/spark/test_event_time.py
@pytest.mark.side_by_side
def test_a_drain_lets_the_last_window_out(
    airflow: AirflowHome, gates: Gates, lake: Lake, storage: str, warm_spark: ConnectServer
) -> None:
    """semantics P2: windows that no time would close go out in one last epoch, and none goes out twice.

    The job has one run at a time, and another one is queued when it is told to stop: that gives its place to the last.
    """
    api, name, stopping = airflow.api, "savepoints_drain", "savepoints_drain_it"
    job = JobStore(storage, name)
    first, last = (int(datetime(2020, 1, *when, tzinfo=UTC).timestamp()) // HOUR_S for when in ((1, 0), (4, 11)))
    run(airflow, name, "e1", datetime(2020, 1, 2, 5, tzinfo=UTC))
    assert [row["window"] for row in job.state("windows", "open")] == [first + 24]
    gates.hold(name, "e2", 1, "windows")
    api.trigger(name, "e2", logical_date=datetime(2020, 1, 3, 7, tzinfo=UTC))
    gates.wait_until_reached(name, "e2", 1, "windows")
    api.trigger(name, "e3", logical_date=datetime(2020, 1, 4, tzinfo=UTC))
    api.trigger(stopping, "now")
    api.wait_for_task(stopping, "now", "stop", states={"deferred"})
    gates.release(name, "e2", 1, "windows")
    ended(airflow, stopping, "now")
    found = api.xcom(stopping, "now", "stop")
    last_run = drain_run(f"{stopping}/stop/now")
    assert found["stopped"] is True
    assert found["epoch"] == last_run
    assert api.request("GET", f"/dags/{name}")["is_paused"]
    assert job.outcomes() == [(1, 1, COMPLETED), (2, 1, COMPLETED), (4, 1, COMPLETED)]
    assert job.runs() == ["e1", "e2", last_run]
    assert tries(airflow, name, last_run)["windows"] == ("success", 1)
    assert tries(airflow, name, "e3")["windows"] == ("failed", 1)
    log = api.log(name, "e3", "epoch.windows")
    assert "Clear this run when the job has been resumed" in log, log
    assert job.value("windows", "drained") is True
    assert job.state("windows", "open") == []

    plain: Counter[int] = Counter()
    for hour in range(first, last):
        plain[hour - hour % WINDOW_HOURS] += hour % 11
    emitted = sorted((row["window"], row["amount"], row["by"]) for row in job.state("windows", "emitted"))
    assert [(window, amount) for window, amount, _ in emitted] == sorted(plain.items())
    begin, by = [window - first for window, _, _ in emitted], [run_id for _, _, run_id in emitted]
    assert dict(zip(begin, by, strict=True)) == {
        **dict.fromkeys(range(0, 24, 6), "e1"),
        **dict.fromkeys(range(24, 54, 6), "e2"),
        **dict.fromkeys(range(54, 84, 6), last_run),
    }
    assert job.unreferenced() == []
    (entry,) = job.coordinator.head().savepoints
    assert (entry.status, entry.uri) == (Status.COMPLETED, found["savepoint"])
    assert lake.folders(name) == {entry.uri}
    log = api.log(stopping, "now", "stop")
    assert f"The job's last run has been made: {last_run} of {name}" in log, log
    assert f"The job has stopped, and the DAG {name} is paused" in log, log


@contextmanager
def cairn(airflow: AirflowHome, s3_server: S3Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command line as a process that knows the S3 server and Airflow, the latter as somebody who may clear."""
    login = httpx.post(
        f"{airflow.url}/auth/token",
        json={"username": CLEARS, "password": airflow.passwords[CLEARS]},
        timeout=300,
        trust_env=False,
    )
    login.raise_for_status()
    env = {
        **os.environ,
        **s3_server.env,
        "CAIRN_STORAGE": STORAGE,
        "CAIRN_AIRFLOW_TOKEN": login.json()["access_token"],
        "CAIRN_AIRFLOW_URL": airflow.url,
    }
    pipe = subprocess.PIPE
    process = subprocess.Popen([VENV / "bin" / "cairn", *words], env=env, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
