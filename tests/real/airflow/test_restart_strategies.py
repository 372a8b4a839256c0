"""A restart strategy on a real Airflow (semantics F4)."""

from __future__ import annotations

import pytest

from tests.real.airflow.scenario import ON_SUBMIT, Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]


@pytest.mark.soak  # rules/failures.py counts, and row 23 has what one restart allows
@ON_SUBMIT
def test_a_stage_that_always_fails_fails_after_three_failovers_20(scenario: Scenario) -> None:  # semantics F4
    """Each failover clears `a`, which would renew Airflow's own budget for ever."""
    api, name, job = scenario.airflow.api, scenario.name, scenario.store
    scenario.start("r1")
    scenario.ended("r1")
    failing = scenario.gates.folder / "fail" / name / "r2" / "b"
    failing.parent.mkdir(parents=True)
    failing.touch()
    scenario.start("r2")
    scenario.ended("r2", "failed")
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
    ran = {stage: scenario.task("r2", stage) for stage in "ab"}
    assert {stage: (ti.state, ti.try_number) for stage, ti in ran.items()} == {"a": ("success", 4), "b": ("failed", 4)}
    assert scenario.submissions("r2") == {"a": 4, "b": 4}
    log = scenario.log("r2", "b", 4)
    assert why in log, log
    assert "restart 3, 0 left" in scenario.log("r2", "b", 3)

    # A person goes on: a clear starts the count anew, and brings the rest of the region with it.
    failing.unlink()
    api.clear(name, "r2", ["epoch.b", "epoch.wait_for_checkpoint"])
    scenario.ended("r2")
    scenario.start("r3")
    scenario.ended("r3")
    assert job.outcomes()[5:] == [(6, 5, "COMPLETED"), (7, 1, "COMPLETED")]
    assert [job.value(stage, "folded") for stage in "ab"] == [["r1", "r2", "r3"]] * 2
    assert job.unreferenced() == []
