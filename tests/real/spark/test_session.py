"""A server that Cairn runs, as a real Spark: started by a stage, shared, killed, replaced, and ended by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint.servers.record import KEY, ServersDocument
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator
from scripts.harness.spark.start import fast_conf
from scripts.harness.wait import wait_until
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

pytestmark = pytest.mark.spark

SECRET = "canary-of-the-secret-0123456789abcdef"  # its value is searched for below

APPLICATION = """
from pyspark.sql.functions import udf
from airflow_cairn.spark import Epoch
with Epoch.current() as epoch:
    before = epoch.state("seen")
    twice = udf(lambda id: 2 * id, "long")
    rows = epoch.spark.range(3).selectExpr(f"id + {epoch.checkpoint} * 10 AS id").withColumn("twice", twice("id"))
    kept = rows if before is None else before.union(rows)
    epoch.snapshot("seen", kept, key="id")
"""


@pytest.fixture
def here(connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The Spark of this environment, and the secret."""
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    connections("cairn_session", json.dumps({"conn_type": "generic", "password": SECRET}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def stage(job: Job, application: str) -> SparkEpochOperator:
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
    session = ConnectSession(conf={**conf, **fast_conf()}, idle=timedelta(seconds=10))
    with DAG("flights"):
        group = CheckpointedTaskGroup(
            "epoch", storage=job.storage, job=job.name, conn_id="spark_here", session=session, reads_window=False
        )
        with group:
            return SparkEpochOperator(task_id="routes", application=application)


def commands(pid: int) -> list[str]:
    """The command lines of a server's processes."""
    below = psutil.Process(pid).children(recursive=True)
    found = []
    for each in [psutil.Process(pid), *below]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            found.append(" ".join(each.cmdline()))
    return found


def daemons(pid: int) -> list[str]:
    """Those of the Python daemons that Spark has started for the UDFs of sessions."""
    return [each for each in commands(pid) if "pyspark.daemon" in each]


def servers(job: Job) -> ServersDocument:
    return job.coordinator.files.read(ServersDocument, KEY)[0]


def test_a_server_is_started_shared_replaced_and_ends_by_itself(
    job: Job, here: None, tmp_path: Path, said: Said
) -> None:  # semantics V1, V4
    application = tmp_path / "routes.py"
    application.write_text(APPLICATION)

    def run(run_id: str) -> str:
        job.trigger(run_id)
        stage(job, str(application)).execute(context(Ti(run_id=run_id)))
        [entry] = servers(job).servers
        return entry.nonce

    first = run("e1")
    assert run("e2") == first, "one server for both"
    [pid] = [int(found) for found in re.findall(r"starting a Spark server for job flights: process (\d+)", said.text)]
    wait_until(lambda: not daemons(pid), 120, "the Python daemons of released sessions to end")
    shown = " ".join(commands(pid))
    assert "spark.plugins" in shown
    os.kill(pid, signal.SIGKILL)
    second = run("e3")
    assert second != first
    assert [each.id for each in job.coordinator.head().completed][-1] == 3

    wait_until(lambda: not servers(job).servers, 300, "the idle server to end")
    pids = [int(found) for found in re.findall(r"starting a Spark server for job flights: process (\d+)", said.text)]
    wait_until(lambda: not psutil.pid_exists(pids[-1]) or psutil.Process(pids[-1]).status() == "zombie", 120, "its end")
    stored = " ".join(path.read_text(errors="replace") for path in job.folder.rglob("*") if path.is_file())
    for text in (shown, said.text, stored):
        assert SECRET not in text
