"""A driver's care for the executors' Python daemons, without a cluster (with one: tests/real/spark)."""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JError

from airflow_cairn.spark.remote import python_daemons
from airflow_cairn.spark.remote.python_daemons import MAX_FAILURES, MAX_PATIENCE, ExecutorDaemons
from scripts.harness.wait import wait_until
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


class Asked(ExecutorDaemons):
    """Daemons of two executors, which answer as a test says."""

    def __init__(self) -> None:
        context: Any = Context(local=False)
        super().__init__(context)
        self.answers = [("one", 0), ("two", 0)]
        self.jobs: list[int] = []
        """Number of closed sessions for which each job ran."""

    def _executors(self) -> Iterator[tuple[str, str]]:
        yield from {"0": "here", "1": "there"}.items()

    def _ask(self, executors: dict[str, str], closed: Collection[str]) -> list[tuple[str, int]]:
        self.jobs.append(len(closed))
        return self.answers

    def end_up_to(self, first: int, last: int) -> list[int]:
        """Close sessions one by one; gives at which of them a job ran."""
        self.jobs.clear()
        for number in range(first, last + 1):
            self.end({str(each) for each in range(number)})
        return [*self.jobs]


def test_jobs_that_find_nothing_become_rare_until_one_finds_something(said: Said) -> None:
    """Without Python in any session, a job each time would cost each epoch a second."""
    daemons = Asked()
    assert daemons.end_up_to(1, 64) == [1, 3, 7, 15, 31, 47, 63]
    assert MAX_PATIENCE == 16
    daemons.answers = [("one", 3), ("two", 0)]
    assert daemons.end_up_to(65, 82) == [79, 80, 81, 82], "from then on after each"


def test_an_executor_that_was_not_asked_is_asked_after_the_next_session(said: Said) -> None:
    daemons = Asked()
    daemons.answers = [("one", 0)]
    assert daemons.end_up_to(1, 4) == [1, 2, 3, 4]
    daemons.answers = []
    assert daemons.end_up_to(5, 15) == [5, 7, 11], "without daemons at all there is nothing to wait for"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Executor that this process plays: a task runs in a worker of one of its daemons."""

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
    assert executor["closed"].wait(300) == -signal.SIGTERM
    assert [uuid for uuid, each in executor.items() if each.poll() is None] == ["default", "open", "other"]


def test_a_task_whose_worker_has_no_daemon_ends_nothing(
    executor: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `spark.python.use.daemon=false` its parent is the executor, whose own parent has other children."""
    monkeypatch.setattr("os.getppid", lambda: executor["other"].pid)
    assert list(python_daemons.end_in_executor(frozenset({"closed"}), iter(()))) == []
    assert executor["closed"].poll() is None


def test_a_parent_of_python_is_not_taken_for_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYSPARK_PYTHON` may name a shell script that does not `exec`"""

    def wrapped(uuid: str) -> subprocess.Popen[bytes]:
        python = [sys.executable, "-c", "import signal; signal.pause()", "pyspark.daemon"]
        return subprocess.Popen(
            ["/bin/sh", "-c", '"$@"; exit $?', "sh", *python], env={**os.environ, "SPARK_JOB_ARTIFACT_UUID": uuid}
        )

    made = [wrapped("default"), wrapped("closed")]
    tops = [psutil.Process(each.pid) for each in made]
    try:
        wait_until(lambda: all(each.children() for each in tops), 300, "both to start Python")
        [own], [closed] = (each.children() for each in tops)
        monkeypatch.setattr("os.getppid", lambda: own.pid)
        [(name, ended)] = python_daemons.end_in_executor(frozenset({"closed"}), iter(()))
        assert name == f"{os.uname().nodename} {os.getpid()}"
        assert ended == 2, "the program and Python"
        made[1].wait(300)
        over = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        wait_until(lambda: not closed.is_running() or closed.status() in over, 300, "Python to end with it")
        assert own.is_running()
        assert made[0].poll() is None
    finally:
        for each in tops:
            for process in (*each.children(), each) if each.is_running() else ():
                process.kill()
        for it in made:
            it.wait()
