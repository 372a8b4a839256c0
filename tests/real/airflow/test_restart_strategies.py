"""A restart strategy on a real Airflow (semantics F4)."""

from __future__ import annotations

import pytest

from scripts.harness.airflow_home import AirflowHome
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

DAG_ID = "restart_strategies"


def run(airflow: AirflowHome, run_id: str, expected: str) -> None:
    """Run an epoch to its end."""
    airflow.api.trigger(DAG_ID, run_id)
    ended(airflow, run_id, expected)


def ended(airflow: AirflowHome, run_id: str, expected: str) -> None:
    assert airflow.api.wait_for_run(DAG_ID, run_id) == expected, airflow.api.explain(DAG_ID, run_id)


def test_a_stage_that_always_fails_fails_after_three_failovers(
    airflow: AirflowHome, gates: Gates, storage: str
) -> None:  # semantics F4
    """Scenario 20: each failover clears `a`, which would renew Airflow's own budget for ever."""
    job = JobStore(storage, DAG_ID)
    run(airflow, "r1", "success")
    failing = gates.folder / "fail" / DAG_ID / "r2" / "b"
    failing.parent.mkdir(parents=True)
    failing.touch()
    run(airflow, "r2", "failed")
    why = "FixedDelayRestart allows 3 restarts of an epoch, and this was failure 4: b: "
    assert job.outcomes() == [
        (1, 1, "COMPLETED"),
        (2, 1, "JOB_FAILOVER_REGION"),
        (3, 2, "JOB_FAILOVER_REGION"),
        (4, 3, "JOB_FAILOVER_REGION"),
        (5, 4, "JOB_FAILURE"),
    ]
    last = job.coordinator.head().history[-1]
    assert (last.restarts, last.for_good, last.restored_from) == (3, True, 1)
    assert last.detail.startswith(why)
    ran = {task: airflow.api.task(DAG_ID, "r2", f"epoch.{task}") for task in "ab"}
    assert {task: (ti.state, ti.try_number) for task, ti in ran.items()} == {"a": ("success", 4), "b": ("failed", 4)}
    log = airflow.api.log(DAG_ID, "r2", "epoch.b", 4)
    assert why in log, log
    assert "restart 3, 0 left" in airflow.api.log(DAG_ID, "r2", "epoch.b", 3)

    # A person goes on: a clear starts the count anew, and brings the rest of the region with it.
    failing.unlink()
    airflow.api.clear(DAG_ID, "r2", ["epoch.b", "epoch.wait_for_checkpoint"])
    ended(airflow, "r2", "success")
    run(airflow, "r3", "success")
    assert job.outcomes()[5:] == [(6, 5, "COMPLETED"), (7, 1, "COMPLETED")]
    assert [job.value(stage, "folded") for stage in "ab"] == [["r1", "r2", "r3"]] * 2
    assert job.unreferenced() == []
