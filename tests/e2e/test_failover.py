"""What runs again after a failure, on a real Airflow with real spark-submit: the rows of docs/failover.md.

Each test says how often each task ran, which checkpoints there were, that the state is what a plain recomputation
gives, and that no file is left that nothing refers to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from scripts.harness.airflow_api import TaskState
from scripts.harness.airflow_home import AirflowHome
from tests.e2e.conftest import Gates, kill_driver
from tests.e2e.store import JobStore

# Each starts up to seven drivers, one after the other; how long that takes is up to the machine.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

COMPLETED, FAILOVER = "COMPLETED", "JOB_FAILOVER_REGION"
ROWS = 100
WAIT = "epoch.wait_for_checkpoint"


@dataclass(frozen=True)
class Scenario:
    """A DAG of `dags/failover.py`, and what may be done to its runs and asked of them."""

    airflow: AirflowHome
    gates: Gates
    store: JobStore

    @property
    def name(self) -> str:
        """The DAG's id, and the job's name."""
        return self.store.coordinator.job

    def start(self, run: str) -> None:
        """Start a run; `e2` is the epoch with the ids from 2000 on."""
        self.airflow.api.trigger(self.name, run)

    def hold(self, run: str, attempt: int, *points: str) -> None:
        """Make stages wait at points: `b.written`."""
        for point in points:
            self.gates.hold(self.name, run, attempt, point)

    def reached(self, run: str, attempt: int, point: str) -> psutil.Process:
        """Wait until a stage stands at a point; gives its driver's JVM."""
        return self.gates.wait_until_reached(self.name, run, attempt, point)

    def release(self, run: str, attempt: int, *points: str) -> None:
        """Let stages go on."""
        for point in points:
            self.gates.release(self.name, run, attempt, point)

    def ended(self, run: str, state: str = "success") -> None:
        """Wait until a run has ended so."""
        api = self.airflow.api
        api.wait_for_run(self.name, run)
        assert api.run_state(self.name, run) == state, api.explain(self.name, run)

    def task(self, run: str, stage: str) -> TaskState:
        """Give a stage's task instance."""
        return self.airflow.api.task(self.name, run, f"epoch.{stage}")

    def log(self, run: str, stage: str, number: int) -> str:
        """Give the log of one try of a stage."""
        return self.airflow.api.log(self.name, run, f"epoch.{stage}", number)

    def tries(self, run: str, stages: str) -> dict[str, int]:
        """Say how often stages have run, each named by one letter."""
        return {stage: self.task(run, stage).try_number for stage in stages}

    def lose_output(self, checkpoint: int, stage: str) -> None:
        """Delete what a stage wrote for those that read from it."""
        files = self.store.files
        found = [each.key for each in files.listing(f"chk-{checkpoint:010}/state/{stage}/") if "exchange." in each.key]
        assert found
        assert files.delete(found) == []

    def check(
        self,
        run: str,
        *,
        tries: Mapping[str, int],
        outcomes: Sequence[tuple[int, int, str]],
        ways: Mapping[str, int],
        epochs: Sequence[int] = (1,),
    ) -> None:
        """Check all that every scenario says about a run that has ended.

        Args:
            run: which one.
            tries: how often each stage ran.
            outcomes: id, attempt, status or reason of every checkpoint of the job.
            ways: for each stage, on how many ways each row comes to it.
            epochs: whose rows are in the state.
        """
        assert self.tries(run, "".join(tries)) == tries
        assert self.store.outcomes() == outcomes
        for stage, number in ways.items():
            rows = [(row["id"], row["ways"]) for row in self.store.state(stage, "seen")]
            expected = [(1000 * epoch + row, number) for epoch in epochs for row in range(ROWS)]
            assert sorted(rows) == expected, stage
        assert self.store.unreferenced() == []


@pytest.fixture
def scenario(request: pytest.FixtureRequest, airflow: AirflowHome, gates: Gates, storage: str) -> Scenario:
    """The scenario whose number the test's name ends in."""
    number = request.node.name.rsplit("_", 1)[1]
    return Scenario(airflow, gates, JobStore(storage, f"failover_{number}"))


def test_the_region_runs_again_2(scenario: Scenario) -> None:
    """semantics F1, F2: a ~ b → c, b's driver is killed: a and b run again, c runs once."""
    scenario.hold("e1", 1, "b.written")
    scenario.start("e1")
    kill_driver(scenario.reached("e1", 1, "b.written"))
    scenario.ended("e1")
    scenario.check(
        "e1",
        tries={"a": 2, "b": 2, "c": 1},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1, "c": 1},
    )
    assert "cleared, to run again: a" in scenario.log("e1", "b", 1)
    note: Any = scenario.task("e1", "a").raw["note"]
    assert note == "Cairn: region failover of checkpoint 2, `b` failed, attempt 2"


def test_a_running_sibling_is_stopped_first_3(scenario: Scenario) -> None:
    """semantics F3: a diamond, all pipelined; b dies while c runs, and c's driver is gone before c runs again."""
    scenario.hold("e1", 1, "b.written", "c.written")
    scenario.hold("e1", 2, "c.started")
    scenario.start("e1")
    running = scenario.reached("e1", 1, "c.written")
    kill_driver(scenario.reached("e1", 1, "b.written"))
    scenario.reached("e1", 2, "c.started")
    assert not running.is_running()
    scenario.release("e1", 2, "c.started")
    scenario.ended("e1")
    scenario.check(
        "e1",
        tries={"a": 2, "b": 2, "c": 2, "d": 1},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1, "c": 1, "d": 2},
    )


def test_a_sibling_of_another_region_runs_on_4(scenario: Scenario) -> None:
    """semantics F1, F2: a diamond, all blocking; b dies while c runs, and c's own driver acknowledges."""
    scenario.hold("e1", 1, "b.written", "c.written")
    scenario.start("e1")
    running = scenario.reached("e1", 1, "c.written")
    kill_driver(scenario.reached("e1", 1, "b.written"))
    scenario.reached("e1", 2, "b.written")
    assert running.is_running()
    scenario.release("e1", 1, "c.written")
    scenario.ended("e1")
    scenario.check(
        "e1",
        tries={"a": 1, "b": 2, "c": 1, "d": 1},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1, "c": 1, "d": 2},
    )


def test_a_missing_output_is_written_again_6(scenario: Scenario) -> None:
    """semantics F1: a → b; what a wrote is deleted before b dies, so a runs again too, through a blocking exchange."""
    scenario.hold("e1", 1, "b.started")
    scenario.start("e1")
    driver = scenario.reached("e1", 1, "b.started")
    scenario.lose_output(1, "a")
    kill_driver(driver)
    scenario.ended("e1")
    scenario.check(
        "e1",
        tries={"a": 2, "b": 2},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1},
    )


def test_cleared_by_hand_where_the_api_refuses_19(scenario: Scenario) -> None:
    """a ~ b: the callback and the next try say what to clear; somebody does, and all is as if Cairn had."""
    scenario.hold("e1", 1, "b.written")
    scenario.start("e1")
    kill_driver(scenario.reached("e1", 1, "b.written"))
    scenario.ended("e1", "failed")
    for number in (1, 2):
        log = scenario.log("e1", "b", number)
        assert "Airflow's API does not take the token" in log
        assert "run e1, choose Clear Task Instance at epoch.a, epoch.b, with Downstream switched on" in log
        assert "no-token-of-this-airflow" not in log
    assert scenario.tries("e1", "ab") == {"a": 1, "b": 2}
    scenario.airflow.api.clear(scenario.name, "e1", ["epoch.a", "epoch.b"], downstream=True)
    scenario.ended("e1")
    scenario.check(
        "e1",
        tries={"a": 2, "b": 3},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1},
    )
