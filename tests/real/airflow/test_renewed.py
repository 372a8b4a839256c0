"""However the task of an acknowledged stage was renewed, a later failure in its region recovers by itself (F5).

The applications make no Spark job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from airflow_cairn.checkpoint.store import acks
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import kill_driver, kill_task
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

RUN, SRC, LEFT = "e1", "epoch.src", "epoch.left"
LONG = 300.0


@dataclass(frozen=True)
class Case:
    """One job of `dags/renewed.py`."""

    airflow: AirflowHome
    gates: Gates
    store: JobStore

    @property
    def dag_id(self) -> str:
        return self.store.coordinator.job

    def start(self, *, hold: str) -> None:
        """Start the run, whose first attempt stands still at a stage."""
        self.gates.hold(self.dag_id, RUN, 1, hold)
        self.airflow.api.trigger(self.dag_id, RUN)
        self.gates.wait_until_reached(self.dag_id, RUN, 1, hold, LONG)

    def left_stands(self, attempt: int) -> None:
        """Start the run; in its first attempt `left` stands still, and in that one later on."""
        if attempt > 1:
            self.gates.hold(self.dag_id, RUN, attempt, "left")
        self.start(hold="left")

    def fail_left(self, attempt: int) -> None:
        """Kill the driver of `left` in an attempt in which it stands still."""
        kill_driver(self.gates.wait_until_reached(self.dag_id, RUN, attempt, "left", LONG))

    def acknowledged(self, stage: str) -> bool:
        """Tell whether a stage has acknowledged in the pending attempt."""
        coordinator = self.store.coordinator
        (entry,) = coordinator.head().pending
        document = coordinator.pending_document(entry)
        assert document is not None
        return acks.has_acknowledged(coordinator.files, stage, document.executions[stage])

    def mark(self, task: str, state: str) -> None:
        """Set a task's state, as the page does."""
        path = f"/dags/{self.dag_id}/dagRuns/{RUN}/taskInstances/{task}"
        self.airflow.api.request("PATCH", path, json={"new_state": state})

    def run_again(self, path: str, **body: object) -> None:
        """Clear as the page does."""
        self.airflow.api.request("POST", f"/dags/{self.dag_id}{path}", json={"dry_run": False, **body})

    def clear(self, task: str, *, downstream: bool = False) -> None:
        """Clear a task as the page does."""
        self.run_again(
            "/clearTaskInstances", dag_run_id=RUN, task_ids=[task], only_failed=False, include_downstream=downstream
        )

    def try_of(self, task: str) -> int:
        """Say how often a task has begun."""
        return self.airflow.api.task(self.dag_id, RUN, task).try_number


def retried(case: Case) -> None:
    """The task's processes die while the driver lives on and acknowledges: the next try finds nothing to submit."""
    case.gates.hold(case.dag_id, RUN, 1, "left")
    case.start(hold="src")
    kill_task(case.gates.wait_until_reached(case.dag_id, RUN, 1, "src", LONG))
    case.gates.release(case.dag_id, RUN, 1, "src")
    wait_until(lambda: case.acknowledged("src"), LONG, "src to acknowledge")
    case.fail_left(1)


def cleared(case: Case) -> None:
    """A person clears the stage alone: that is a new attempt, and `left` is stopped and runs again with it."""
    case.left_stands(2)
    case.clear(SRC)
    case.fail_left(2)


def cleared_downstream(case: Case) -> None:
    """A person clears the stage and what comes after it."""
    case.left_stands(2)
    case.clear(SRC, downstream=True)
    case.fail_left(2)


def cleared_run(case: Case) -> None:
    """A person clears the whole run."""
    case.left_stands(2)
    case.run_again(f"/dagRuns/{RUN}/clear")
    case.fail_left(2)


def marked_failed(case: Case) -> None:
    """A person marks the stage's task as failed; Airflow gives up what comes after it, and both are cleared then.

    Airflow does so at its next look, although `left` runs: a clear of the stage alone would leave `left` as it is.
    """
    case.left_stands(2)
    case.mark(SRC, "failed")
    case.airflow.api.wait_for_task(case.dag_id, RUN, LEFT, states={"upstream_failed"}, timeout=LONG)
    case.clear(SRC, downstream=True)
    case.fail_left(2)


def marked_success(case: Case) -> None:
    """A person marks the stage's task as a success while it runs: nothing of it is in the store, so it runs again.

    Airflow starts `left` before or after it has ended the marked task. In the first case `left` runs once more: the
    marked task's callback has it cleared or, where Airflow kills that task before its callback has run, the task that
    waits for the checkpoint starts `src` again when `left` has ended. So nothing holds `left` in the first attempt.
    """
    case.gates.hold(case.dag_id, RUN, 2, "left")
    case.start(hold="src")
    case.mark(SRC, "success")
    case.fail_left(2)


def cleared_by_cairn(case: Case) -> None:
    """A failover has cleared the stage before."""
    case.left_stands(2)
    case.fail_left(1)
    case.fail_left(2)


def left_lost(case: Case) -> None:
    """The reader's worker is lost, its driver with it: no callback comes from the task's own process."""
    case.left_stands(1)
    driver = case.gates.wait_until_reached(case.dag_id, RUN, 1, "left", LONG)
    kill_task(driver)
    kill_driver(driver)


OUTCOMES: dict[Callable[[Case], None], tuple[int, str]] = {
    retried: (2, "src 3, left 2"),
    cleared: (3, "src 3, left 3"),
    cleared_downstream: (3, "src 3, left 3"),
    cleared_run: (3, "src 3, left 3"),
    marked_failed: (3, "src 3, left 3"),
    marked_success: (3, "src 3, left 2 or 3"),
    cleared_by_cairn: (3, "src 3, left 3"),
    left_lost: (2, "src 2, left 2"),
}
"""For each way the attempt that completes, and how often each task has begun."""


ALIKE = (cleared, cleared_downstream, cleared_run, cleared_by_cairn, left_lost, marked_success, marked_failed)
"""People clear and mark in test_hands.py too; row 2 clears, and in row 12 no callback comes."""


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.soak] if way in ALIKE else []) for way in OUTCOMES],
    ids=lambda way: way.__name__,
)
def test_a_failure_after_it_recovers_by_itself(
    way: Callable[[Case], None], airflow: AirflowHome, gates: Gates, storage: str
) -> None:  # semantics F5
    case, api = Case(airflow, gates, JobStore(storage, f"renewed_{way.__name__}")), airflow.api
    way(case)
    api.wait_for_run(case.dag_id, RUN)
    assert api.run_state(case.dag_id, RUN) == "success", api.explain(case.dag_id, RUN)
    attempts, tries = OUTCOMES[way]
    src, left = tries.split(", ")
    assert f"src {case.try_of(SRC)}" == src
    assert f"left {case.try_of(LEFT)}" in (left, *(f"left {number}" for number in left[5:].split(" or ")))
    ended = [(number, number, "JOB_FAILOVER_REGION") for number in range(1, attempts)]
    assert case.store.outcomes() == [*ended, (attempts, attempts, "COMPLETED")]
    assert [case.store.value(stage, "folded") for stage in ("src", "left")] == [[RUN], [RUN]]
    assert case.store.unreferenced() == []
