"""What a driver does about the executors' Python daemons, without a cluster (with one: tests/real/spark)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from airflow_cairn.spark.remote.driver import python_daemons
from airflow_cairn.spark.remote.driver.executor_daemons import MAX_FAILURES, ExecutorDaemons
from tests.support.airflow_fixtures import Said


class Context:
    """A Spark context that gives no job of its own."""

    def __init__(self, *, local: bool) -> None:
        self.local = local
        self.asked = 0
        self._jsc = SimpleNamespace(sc=lambda: self)

    def isLocal(self) -> bool:
        return self.local

    def statusStore(self) -> Any:
        self.asked += 1
        raise Py4JError("there is no such method")


def test_in_local_mode_the_driver_asks_nobody(said: Said) -> None:
    context: Any = Context(local=True)
    ExecutorDaemons(context).end({"closed"})
    assert context.asked == 0


def test_what_fails_again_and_again_is_not_tried_for_ever(said: Said) -> None:
    context: Any = Context(local=False)
    daemons = ExecutorDaemons(context)
    for _ in range(MAX_FAILURES + 2):
        daemons.end({"closed"})
    assert context.asked == MAX_FAILURES
    assert said.text.count("on executors were not ended: there is no such method") == MAX_FAILURES


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """This process as an executor, which runs a task in a worker of one of its daemons."""

    def process(uuid: str, name: str = "pyspark.daemon") -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()", name],
            env={**os.environ, "SPARK_JOB_ARTIFACT_UUID": uuid},
        )

    made = {uuid: process(uuid) for uuid in ("default", "closed", "open")} | {"other": process("closed", "other")}
    monkeypatch.setattr("os.getppid", lambda: made["default"].pid)
    yield made
    for each in made.values():
        each.kill()
        each.wait()


def test_a_task_ends_the_daemons_of_closed_sessions_below_its_executor(
    executor: dict[str, subprocess.Popen[bytes]],
) -> None:
    [(name, ended)] = python_daemons.end_in_executor(frozenset({"closed", "elsewhere"}), iter(()))
    assert name == f"{os.uname().nodename} {os.getpid()}"
    assert ended == 1
    assert executor["closed"].wait(60) == -signal.SIGTERM
    assert [uuid for uuid, each in executor.items() if each.poll() is None] == ["default", "open", "other"]


def test_a_task_whose_worker_has_no_daemon_ends_nothing(
    executor: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `spark.python.use.daemon=false` its parent is the executor, whose own parent has other children."""
    monkeypatch.setattr("os.getppid", lambda: executor["other"].pid)
    assert list(python_daemons.end_in_executor(frozenset({"closed"}), iter(()))) == []
    assert executor["closed"].poll() is None
