"""Stages on a Spark Connect server as tasks of a real Airflow, after one by spark-submit in the same job."""

from __future__ import annotations

import json
from collections import Counter

import psutil
import pytest

from airflow_cairn.checkpoint.documents.layout import epoch_name
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    # In `make test` test_failover.py kills clients, test_session.py a server, and tests/real/spark/test_connect.py has
    # what a client leaves.
    pytest.mark.soak,
]

JOB, FILE, FUNCTION = "over_connect", "epoch.file", "epoch.function"
TOKEN = "canary-of-the-server-0123456789"  # its value is searched for below
ENV = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.side_by_side(100)
def test_clients_and_their_server_die_and_each_stage_alone_runs_again(
    airflow: AirflowHome, gates: Gates, storage: str
) -> None:
    """semantics V2, F2, R1: killed are a client, a task without its client, and a server."""
    api, job = airflow.api, JobStore(storage, JOB)

    def writes(attempt: int) -> None:
        """Wait until the file's stage is in the middle of its write."""
        gates.wait_until_reached(JOB, "e1", attempt, "file")
        folder = f"chk-{attempt:010}/state/file/"
        wait_until(lambda: [*job.files.listing(folder)], 600, f"attempt {attempt} to write")

    for run, attempt, stage in (("e1", 1, "file"), ("e1", 2, "file"), ("e2", 1, "function-0")):
        gates.hold(JOB, run, attempt, stage)
    with ConnectServer(env=ENV) as server:
        connection = {"connection_id": JOB, "conn_type": "spark_connect", "host": "localhost", "port": server.port}
        api.request("POST", "/connections", json={**connection, "password": TOKEN})
        api.trigger(JOB, "e1")
        writes(1)
        gates.wait_until_reached(JOB, "e1", 1, "file").kill()
        writes(2)
        alone = gates.wait_until_reached(JOB, "e1", 2, "file")
        task = alone.parent()
        assert task is not None
        task.kill()
        api.wait_for_run(JOB, "e1", timeout=1200)
        assert api.run_state(JOB, "e1") == "success", api.explain(JOB, "e1")
        wait_until(lambda: has_ended(alone), 600, "the client without a task, whose session is released, to end")

        api.trigger(JOB, "e2")
        gates.wait_until_reached(JOB, "e2", 1, "function-0")
        server.process.kill()
    with ConnectServer({"spark.connect.grpc.binding.port": str(server.port)}, env=ENV):
        api.wait_for_run(JOB, "e2", timeout=1200)
    assert api.run_state(JOB, "e2") == "success", api.explain(JOB, "e2")

    ran = Counter({(ti.task_id, ti.map_index): ti.try_number for ti in api.task_instances(JOB, "e1")})
    assert ran.pop((FILE, -1)) == 3
    assert set(ran.values()) == {1}
    killed, got = api.log(JOB, "e1", FILE, 1), api.log(JOB, "e1", FUNCTION, 1, map_index=1)
    assert "the Spark Connect client was killed by signal 9" in killed
    assert "its session is released: the server stops what it has begun" in killed
    assert "part 1 of e1" in got
    shown = [killed, got, *(json.dumps(api.rendered_fields(JOB, "e1", task)) for task in (FILE, "epoch.submitted"))]
    assert all(TOKEN not in text for text in shown)
    result = {"checkpoint": 3, "epoch": epoch_name("e1"), "attempt": 3, "stage": "file"}
    assert api.xcom(JOB, "e1", FILE) == result
    links = api.request("GET", f"/dags/{JOB}/dagRuns/e1/taskInstances/{FILE}/links")["extra_links"]
    assert links["Checkpoint"].endswith(f"/dags/{JOB}/runs/e1/plugin/run-checkpoints")

    first, second = job.outcomes()[:3], job.outcomes()[3:]
    assert first == [(1, 1, "JOB_FAILOVER_REGION"), (2, 2, "JOB_FAILOVER_REGION"), (3, 3, "COMPLETED")]
    # Tries that begin before the new server is up fail too.
    assert [how for _, _, how in second] == ["JOB_FAILOVER_REGION"] * (len(second) - 1) + ["COMPLETED"]
    assert len(second) > 1
    for part in (0, 1):
        kept = sorted(row["id"] for row in job.state(f"function-{part}", "seen"))
        assert kept == [*range(1000 + part, 1040, 2), *range(2000 + part, 2040, 2)]
    assert job.unreferenced() == []
