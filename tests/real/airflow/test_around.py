"""Surroundings of stages, on a real Airflow: a stage that lags, a master hook, a listener, an asset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

JOB, BESIDE = "slow_stage", "waits_for_slow_stage"


def owed(gates: Gates, run_id: str, stage: str) -> list[str]:
    """Give the runs whose input the stage was handed besides its own."""
    found: list[str] = json.loads((gates.folder / "read" / JOB / run_id / "1" / stage).read_text())["owes"]
    return found


def test_a_checkpoint_completes_without_a_stage_that_lags(
    airflow: AirflowHome, gates: Gates, shared: Path, storage: str
) -> None:
    """semantics B3, T7, C4: the lagging stage is skipped, its next run reads its backlog; hook and listener are asked.

    A DAG that is scheduled on the job's asset runs, and learns which checkpoints completed. Another one waits for the
    second epoch in the triggerer.

    Its driver may stand at the gate by then, or start later and find the checkpoint completed: both are right.
    """
    api = airflow.api
    api.trigger(BESIDE, "e")
    api.wait_for_task(BESIDE, "e", "wait", states={"deferred"})
    gates.hold(JOB, "e1", 1, "slow")
    api.trigger(JOB, "e1")
    api.wait_for_task(JOB, "e1", "after", states={"success"})
    assert api.xcom(JOB, "e1", "epoch.wait_for_checkpoint")["left_out"] == ["slow"]
    gates.release(JOB, "e1", 1, "slow")
    api.wait_for_run(JOB, "e1")
    assert api.run_state(JOB, "e1") == "success", api.explain(JOB, "e1")
    assert api.task(JOB, "e1", "epoch.slow").state == "skipped"
    links = api.request("GET", f"/dags/{JOB}/dagRuns/e1/taskInstances/epoch.wait_for_checkpoint/links")["extra_links"]
    assert links["Checkpoint"].endswith(f"/dags/{JOB}/runs/e1/plugin/run-checkpoints")
    assert "checkpoint 1 has completed epoch e1 without stage slow. Its input is kept" in api.log(
        JOB, "e1", "epoch.slow"
    )

    api.trigger(JOB, "e2")
    api.wait_for_run(JOB, "e2")
    assert api.run_state(JOB, "e2") == "success", api.explain(JOB, "e2")
    assert "left_out" not in api.xcom(JOB, "e2", "epoch.wait_for_checkpoint")
    assert (owed(gates, "e2", "read"), owed(gates, "e2", "slow")) == ([], ["e1"])
    assert "The stage first reads its backlog: epoch e1" in api.log(JOB, "e2", "epoch.slow")
    api.wait_for_run(BESIDE, "e")
    assert api.run_state(BESIDE, "e") == "success", api.explain(BESIDE, "e")
    assert api.xcom(BESIDE, "e", "wait") == {"job": JOB, "checkpoint": 2}
    job = JobStore(storage, JOB)
    assert job.outcomes() == [(1, 1, "COMPLETED"), (2, 1, "COMPLETED")]
    assert job.unreferenced() == []
    events = {f"asset: e{number} in checkpoint {number}" for number in (1, 2)}
    wait_until(
        lambda: events <= set((shared / "said").read_text().splitlines()), 600, "both epochs' events to start runs"
    )
    said = (shared / "said").read_text().splitlines()
    asked = ["reset", "trigger 1", 'restore 1 {"upto": 100}', "trigger 2"]
    assert [line for line in said if line.startswith("hook")] == [f"hook: {each}" for each in asked]
    # At least once: a sensor that Airflow runs again tells again.
    told = dict.fromkeys(line for line in said if line.startswith("listener"))
    assert list(told) == ["listener: completed 1", "listener: completed 2"]
