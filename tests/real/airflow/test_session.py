"""Stages that share a server which Cairn runs, as tasks of a real Airflow."""

from __future__ import annotations

import json
import re

import psutil
import pytest

from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument
from airflow_cairn.spark.remote.server import server_token
from scripts.harness.airflow_api import AirflowApi
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import SESSION_SECRET, Gates
from tests.real.airflow.store import JobStore
from tests.support.shut_down import shut_down

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

JOB, FILE, FUNCTION = "warm_session", "epoch.file", "epoch.function"
WELL_AGAIN = "function-0"
"""The stage that first notices a dead server, and is well on another one before the other stage notices."""


@pytest.mark.side_by_side(120)
def test_two_epochs_share_a_server_and_its_death_is_one_failure(
    airflow: AirflowHome, gates: Gates, storage: str
) -> None:
    """semantics V1, V4, F4: the strategy allows one restart, and the server's death takes two stages along.

    The second one notices only after the first is well on another server.
    """
    job = JobStore(storage, JOB)
    try:
        share_a_server_that_dies(airflow, gates, storage, job)
    finally:
        shut_down(job.coordinator)


def share_a_server_that_dies(airflow: AirflowHome, gates: Gates, storage: str, job: JobStore) -> None:
    """Run two epochs, and kill the server in the second."""
    api = airflow.api

    def server() -> str:
        [entry] = job.files.read(ServersDocument, KEY)[0].servers
        return entry.nonce

    for stage in ("function-0", "function-1"):
        gates.hold(JOB, "e2", 1, stage)
    api.trigger(JOB, "e1")
    api.wait_for_run(JOB, "e1", timeout=1200)
    assert api.run_state(JOB, "e1") == "success", api.explain(JOB, "e1")
    first = server()
    [pid] = re.findall(r"Starting a Spark server for job warm_session: process (\d+)", api.log(JOB, "e1", FILE, 1))
    process = psutil.Process(int(pid))

    api.trigger(JOB, "e2")
    _, late = (gates.wait_until_reached(JOB, "e2", 1, stage) for stage in ("function-0", "function-1"))
    assert server() == first, "it outlives the task that started it, and its epoch"
    commands = json.dumps([each.info for each in psutil.process_iter(["cmdline"])])
    # If both failures come together, the first takes the second along anyway.
    late.suspend()
    process.kill()
    wait_until(lambda: WELL_AGAIN in _acknowledged(job, 2), 600, WELL_AGAIN)
    late.resume()
    api.wait_for_run(JOB, "e2", timeout=1200)
    assert api.run_state(JOB, "e2") == "success", api.explain(JOB, "e2")
    second = server()
    assert second != first

    assert job.outcomes() == [
        (1, 1, "COMPLETED"),
        (2, 1, "JOB_FAILOVER_REGION"),
        (3, 2, "JOB_FAILOVER_REGION"),
        (4, 3, "COMPLETED"),
    ]
    for part in (0, 1):
        kept = sorted(row["id"] for row in job.state(f"function-{part}", "seen"))
        assert kept == [*range(1000 + part, 1040, 2), *range(2000 + part, 2040, 2)]
    assert job.unreferenced() == []
    shut_down(job.coordinator)
    wait_until(lambda: not job.files.read(ServersDocument, KEY)[0].servers, 300, "the server of a stopped job to end")

    logs = [api.log(JOB, run, FILE, 1) for run in ("e1", "e2")]
    logs += [api.log(JOB, "e2", FUNCTION, number, map_index=part) for number in (1, 2) for part in (0, 1)]
    fields = [json.dumps(api.rendered_fields(JOB, "e2", FILE))]
    stored = [job.files.store.get(each.key).data.decode(errors="replace") for each in job.files.store.list(f"{JOB}/")]
    pushed = _xcoms(api, "e1") + _xcoms(api, "e2")
    assert {(FILE, -1), (FUNCTION, 0), (FUNCTION, 1)} <= {instance for instance, _ in pushed}
    xcoms = [text for _, text in pushed]
    secrets = (SESSION_SECRET, *(server_token(SESSION_SECRET, storage, JOB, nonce) for nonce in (first, second)))
    for hidden in secrets:
        assert all(hidden not in text for text in (commands, *logs, *fields, *stored, *xcoms))

    for number, hidden in enumerate(secrets):
        api.push_xcom(JOB, "e2", FILE, f"planted {number}", f"token={hidden}")
        assert [instance for instance, text in _xcoms(api, "e2") if hidden in text] == [(FILE, -1)], "it can be found"


@pytest.mark.side_by_side(300)
@pytest.mark.soak  # PySpark's client begins to doubt a silent server after two minutes; the rest is as above
def test_a_server_that_hangs_is_one_failure_28(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics V4, F4: the JVM stands still; a stage that notices after another has replaced it costs no restart."""
    api, job, name = airflow.api, JobStore(storage, "hung_session"), "hung_session"
    for stage in ("function-0", "function-1"):
        gates.hold(name, "e1", 1, stage)
    api.trigger(name, "e1")
    try:
        _, late = (gates.wait_until_reached(name, "e1", 1, stage) for stage in ("function-0", "function-1"))
        [pid] = re.findall(rf"Starting a Spark server for job {name}: process (\d+)", api.log(name, "e1", FILE, 1))
        server = psutil.Process(int(pid))
        late.suspend()
        server.suspend()
        try:
            wait_until(lambda: WELL_AGAIN in _acknowledged(job, 2), 600, WELL_AGAIN)
            late.resume()
            api.wait_for_run(name, "e1", timeout=1200)
        finally:
            server.kill()
        assert api.run_state(name, "e1") == "success", api.explain(name, "e1")
    finally:
        shut_down(job.coordinator)
    tries = [api.task(name, "e1", FUNCTION, map_index=part).try_number for part in (0, 1)]
    assert (api.task(name, "e1", FILE).try_number, *tries) == (1, 2, 2)
    assert job.outcomes() == [(1, 1, "JOB_FAILOVER_REGION"), (2, 2, "JOB_FAILOVER_REGION"), (3, 3, "COMPLETED")]
    for part in (0, 1):
        assert sorted(row["id"] for row in job.state(f"function-{part}", "seen")) == [*range(1000 + part, 1040, 2)]
    assert job.unreferenced() == []


def _acknowledged(job: JobStore, attempt: int) -> set[str]:
    """Name the stages that have acknowledged for an attempt of the job's pending epoch."""
    pending = [each for each in job.coordinator.head().pending if each.attempt == attempt]
    keys = [key.key for each in pending for key in job.files.listing(f"chk-{each.id:010d}/acks/")]
    return {key.split("/acks/")[1].split("/")[0] for key in keys}


def _xcoms(api: AirflowApi, run_id: str) -> list[tuple[tuple[str, int], str]]:
    """Give each task instance of a run that has XComs, and what all of them say."""
    instances = ((each.task_id, each.map_index) for each in api.task_instances(JOB, run_id))
    read = ((each, api.xcoms(JOB, run_id, each[0], map_index=each[1])) for each in instances)
    return [(instance, json.dumps(found)) for instance, found in read if found]
