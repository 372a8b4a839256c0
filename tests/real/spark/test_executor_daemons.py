"""The Python daemons that sessions leave on the executors of a real cluster, which the driver has ended."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from airflow_cairn.spark.remote import python_daemons
from airflow_cairn.spark.remote.python_daemons import ExecutorDaemons
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.spark.start import small_conf
from scripts.harness.wait import wait_until
from tests.support.airflow_fixtures import Said

# In `make test` those of a server's sessions end in test_session.py; what an executor is asked, and how often:
# tests/unit/spark/remote/test_executor_daemons.py.
pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.fixture(scope="module", params=["python"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of the executors: the program itself, or a shell script that starts it below itself, as on some sites."""
    if request.param == "python":
        return sys.executable
    script = tmp_path_factory.mktemp("site") / "python"
    script.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\nexit $?\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def cluster(python: str) -> Iterator[SparkSession]:
    """A session on a cluster of two executors, which keeps the artifacts of sessions apart as a server of Cairn's."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        **small_conf(),
    }
    with pytest.MonkeyPatch.context() as patch, SparkCluster() as it:
        patch.setenv("PYSPARK_PYTHON", python)
        spark = SparkSession.builder.master(it.master_url).config(map={**conf}).getOrCreate()
        yield spark
        spark.stop()


class Session:
    """A session, as a server makes one for each client."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark.newSession()
        self.uuid = str(self.spark._jsparkSession.sessionUUID())

    def daemons(self) -> set[int]:
        """Compute on all executors; gives the daemons that did."""
        parent = udf(lambda _: os.getppid(), "int")
        return {row[0] for row in self.spark.range(0, 40, 1, 40).select(parent("id")).collect()}


def _executor_of(pid: int) -> int:
    """Find the executor that has started a Python daemon, itself or by another program."""
    return next(each.pid for each in psutil.Process(pid).parents() if each.name() == "java")


def _below(executors: set[int]) -> list[int]:
    """Count the Python processes directly below each executor."""
    return [len(psutil.Process(pid).children()) for pid in executors]


def test_the_daemons_of_closed_sessions_end_and_an_open_one_keeps_its_own(cluster: SparkSession, said: Said) -> None:
    sessions = [Session(cluster) for _ in range(4)]
    used = [each.daemons() for each in sessions]
    executors = {_executor_of(pid) for each in used for pid in each}
    assert len(executors) == 2
    assert len(set().union(*used)) == 8, "each session has one of its own on each executor"
    daemons = ExecutorDaemons(cluster.sparkContext)
    daemons.end({each.uuid for each in sessions[:3]})
    wait_until(lambda: _below(executors) == [2, 2], 60, "six daemons to end, while the driver's own stay")
    assert sessions[3].daemons() == used[3], "the same ones"
    assert "of closed sessions on 2 of 2 executors" in said.text
    assert "were not ended" not in said.text

    daemons.end({each.uuid for each in sessions})
    wait_until(lambda: _below(executors) == [1, 1], 60, "all but the driver's own to end")


@pytest.mark.parametrize("python", ["script"], indirect=True)
def test_so_do_those_that_a_program_of_the_sites_has_started(cluster: SparkSession, said: Said) -> None:
    left = Session(cluster)
    executors = {_executor_of(pid) for pid in left.daemons()}
    daemons = ExecutorDaemons(cluster.sparkContext)
    daemons.end({left.uuid})
    assert re.search(r"Ended [4-9] Python processes of closed sessions on 2 of 2 executors", said.text), "and workers"
    wait_until(lambda: _below(executors) == [1, 1], 60, "all but the driver's own to end")
    daemons.end({left.uuid, "another"})
    assert "Ended 0 Python processes of closed sessions on 2 of 2 executors" in said.text


def test_where_executors_are_busy_it_gives_up_in_time_and_comes_again(
    cluster: SparkSession, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Session(cluster)
    executors = {_executor_of(pid) for pid in left.daemons()}
    gate = tmp_path / "gate"

    def wait(_: object) -> Iterator[int]:
        (tmp_path / f"began-{os.getpid()}").touch()
        with gate.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield 1

    held = gate.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    busy = Thread(target=lambda: cluster.sparkContext.parallelize(range(2), 2).mapPartitions(wait).collect())
    busy.start()
    try:
        wait_until(lambda: len([*tmp_path.glob("began-*")]) == 2, 60, "both executors to be busy")
        monkeypatch.setattr(python_daemons, "BOUND_S", 1.0)
        daemons = ExecutorDaemons(cluster.sparkContext)
        for _ in range(python_daemons.MAX_FAILURES + 1):
            daemons.end({left.uuid})
        assert "Executors are busy" in said.text
    finally:
        held.close()
        busy.join()
    monkeypatch.setattr(python_daemons, "BOUND_S", 60.0)
    daemons.end({left.uuid})
    wait_until(lambda: _below(executors) == [1, 1], 60, "the daemons to end after all")
