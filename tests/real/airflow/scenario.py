"""A pipeline of `dags/failover.py` on the real Airflow: what may be done to its runs, and what is asked of them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import psutil
import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.storage import S3Options
from scripts.harness.airflow_api import TaskState
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from tests.real.airflow.store import JobStore
from tests.support.s3_proxy import S3Proxy

if TYPE_CHECKING:
    from tests.real.airflow.conftest import Gates

COMPLETED, FAILOVER = "COMPLETED", "JOB_FAILOVER_REGION"
ROWS = 100
SUBMIT, CONNECT = "submit", "connect"
ON_SUBMIT, ON_CONNECT = (
    pytest.mark.parametrize("scenario", [first, pytest.param(other, marks=pytest.mark.soak)], indirect=True)
    for first, other in ((SUBMIT, CONNECT), (CONNECT, SUBMIT))
)
"""Drivers by spark-submit, or clients of a Spark Connect server; `make soak` runs the test the other way too."""
WAIT = "epoch.wait_for_checkpoint"


@dataclass(frozen=True)
class Scenario:
    """A DAG of `dags/failover.py`, and what may be done to its runs and asked of them."""

    airflow: AirflowHome
    gates: Gates
    store: JobStore
    group: str = "epoch."
    """Prefix of the ids of the stages' tasks."""

    @property
    def name(self) -> str:
        """The DAG's id, and the job's name."""
        return self.store.coordinator.job

    @property
    def on_connect(self) -> bool:
        """Tell whether the stages in question are clients of a Spark Connect server."""
        return self.name.endswith(f"_{CONNECT}")

    def start(self, run: str) -> None:
        """Start a run; `e2` is the epoch with the ids from 2000 on."""
        self.airflow.api.trigger(self.name, run)

    def hold(self, run: str, attempt: int, *points: str) -> None:
        """Make stages wait at points: `b.written`."""
        for point in points:
            self.gates.hold(self.name, run, attempt, point)

    def reached(self, run: str, attempt: int, point: str) -> psutil.Process:
        """Wait until a stage stands at a point; gives its driver's JVM, or its client."""
        return self.gates.wait_until_reached(self.name, run, attempt, point)

    def release(self, run: str, attempt: int, *points: str) -> None:
        """Let stages go on."""
        for point in points:
            self.gates.release(self.name, run, attempt, point)

    def stopped_at(self, run: str, *points: str) -> list[psutil.Process]:
        """Start a run whose first attempt stands still at points; gives the driver's JVM, or the client, at each."""
        self.hold(run, 1, *points)
        self.start(run)
        return [self.reached(run, 1, point) for point in points]

    def killed_at(self, run: str, *points: str) -> None:
        """Start a run and kill the driver at each point, once one stands at every point."""
        for driver in self.stopped_at(run, *points):
            kill_driver(driver)

    def ended(self, run: str, state: str = "success") -> None:
        """Wait until a run has ended so."""
        api = self.airflow.api
        api.wait_for_run(self.name, run)
        assert api.run_state(self.name, run) == state, api.explain(self.name, run)

    def task(self, run: str, stage: str) -> TaskState:
        """Give a stage's task instance; `b-1` is instance 1 of the mapped task `b`."""
        task_id, _, index = stage.partition("-")
        return self.airflow.api.task(self.name, run, f"{self.group}{task_id}", map_index=int(index or -1))

    def log(self, run: str, stage: str, number: int) -> str:
        """Give the log of one try of a stage."""
        return self.airflow.api.log(self.name, run, f"{self.group}{stage}", number)

    def tries(self, run: str, stages: Iterable[str]) -> dict[str, int]:
        """Say how often stages have run."""
        return {stage: self.task(run, stage).try_number for stage in stages}

    def submissions(self, run: str) -> Counter[str]:
        """Say how often each stage was submitted, or ran as a client of a server; each time for another execution."""
        noted = self.gates.submitted(self.name, layout.epoch_name(run))
        assert len(set(noted)) == len(noted), noted
        return Counter(stage for stage, _ in noted)

    def told(self, run: str, attempt: int, stage: str) -> str:
        """Give what a replaced execution of a stage was told."""
        return (self.gates.folder / "told" / self.name / run / str(attempt) / stage).read_text()

    def output(self, checkpoint: int, stage: str) -> list[str]:
        """Give the keys of what a stage wrote for those that read from it."""
        listed = self.store.files.listing(f"chk-{checkpoint:010}/state/{stage}/")
        found = [each.key for each in listed if "exchange." in each.key]
        assert found
        return found

    def lose_output(self, checkpoint: int, stage: str) -> None:
        """Delete what a stage wrote for those that read from it."""
        assert self.store.files.delete(self.output(checkpoint, stage)) == []

    def shorten_output(self, checkpoint: int, stage: str) -> None:
        """Cut one file in half of what a stage wrote for those that read from it."""
        url = self.store.files.spark_url(self.output(checkpoint, stage)[0])
        file = Path(url.removeprefix("file:"))
        os.truncate(file, file.stat().st_size // 2)

    def fail_permanently(self, run: str, stage: str) -> None:
        """Make a stage's application wrong."""
        told = self.gates.folder / "fail" / self.name / run / stage
        told.parent.mkdir(parents=True)
        told.touch()

    def check(
        self,
        run: str,
        *,
        tries: Mapping[str, int],
        outcomes: Sequence[tuple[int, int, str]],
        ways: Mapping[str, int] = MappingProxyType({}),
        epochs: Sequence[int] = (1,),
        submissions: Mapping[str, int] | None = None,
    ) -> None:
        """Wait until a run has ended well, and check all that every scenario says about one.

        Args:
            run: which one.
            tries: how often each stage ran.
            outcomes: id, attempt, status or reason of every checkpoint of the job; each first attempt is of the next
                run, e1 to begin with.
            ways: for each stage in Spark, on how many ways each row comes to it; the driver of any other notes the
                runs that it has read.
            epochs: whose rows or notes are in the state.
            submissions: how often each stage was submitted; as often as it ran, if not given.
        """
        self.ended(run)
        assert self.tries(run, tries) == tries
        submitted = self.submissions(run)
        assert {stage: submitted[stage] for stage in tries} == (submissions or tries)
        assert self.store.outcomes() == outcomes
        begun = accumulate(int(attempt == 1) for _, attempt, _ in outcomes)
        assert self.store.runs() == [f"e{number}" for number in begun]
        for stage in tries.keys() - ways.keys():
            assert self.store.value(stage, "folded") == [f"e{epoch}" for epoch in epochs], stage
        for stage, number in ways.items():
            rows = [(row["id"], row["ways"]) for row in self.store.state(stage, "seen")]
            expected = [(1000 * epoch + row, number) for epoch in epochs for row in range(ROWS)]
            assert sorted(rows) == expected, stage
        assert self.store.unreferenced() == []

    def check_second_attempt(self) -> None:
        """Check that e1 of `a → b` has completed in its second attempt, in which a is kept; b may have tried often."""
        assert self.task("e1", "a").try_number == 1
        assert self.store.outcomes() == [(1, 1, FAILOVER), (2, 2, COMPLETED)]
        assert [self.store.value(stage, "folded") for stage in "ab"] == [["e1"], ["e1"]]
        assert self.store.unreferenced() == []


def on_s3(scenario: Scenario, server: S3Server, proxy: S3Proxy, conn_id: str, bucket: str) -> Scenario:
    """Make the connection and bucket that a scenario's DAG names, behind a proxy; give the scenario of that store."""
    server.create_bucket(bucket)
    keys = {"login": server.access_key, "password": server.secret_key}
    extra = json.dumps({"endpoint_url": proxy.url, "region_name": server.region})
    connection = {"connection_id": conn_id, "conn_type": "aws", "extra": extra, **keys}
    scenario.airflow.api.request("POST", "/connections", json=connection)
    options = S3Options(server.endpoint_url, server.region, server.access_key, server.secret_key)
    return replace(scenario, store=JobStore(f"s3://{bucket}/jobs", scenario.name, options))


def kill_driver(driver: psutil.Process) -> None:
    """Kill a Spark driver at once: the JVM and the Python below it; or the client of a server."""
    for victim in [driver, *driver.children(recursive=True)]:
        victim.send_signal(signal.SIGKILL)


def kill_task(driver: psutil.Process) -> None:
    """Kill the Airflow processes above a driver, up to the executor's worker, and leave the driver alive.

    The driver is `spark-submit`, or the client of a server, below the task's own process, below its supervisor.
    """
    above = [process for process in driver.parents() if "airflow" in " ".join(process.cmdline())]
    task, supervisor = above[0], above[1]
    for victim in (supervisor, task):
        victim.send_signal(signal.SIGKILL)
    psutil.wait_procs([supervisor, task], timeout=300)
