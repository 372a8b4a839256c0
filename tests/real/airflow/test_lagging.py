"""A stage that lags, on a real Airflow with a real Spark server: its input is kept, and read in the next epoch."""

from __future__ import annotations

import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.connect_server import ConnectServer
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore

# In `make test` test_around.py has a checkpoint without a stage, tests/real/spark/test_backlog.py what that reads then.
pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side, pytest.mark.soak]

JOB = "lagging"


def test_what_a_lagging_stage_has_not_read_is_replayed_by_the_next(
    airflow: AirflowHome, gates: Gates, storage: str, warm_spark: ConnectServer
) -> None:
    """semantics B3, A2: the checkpoint completes while the stage computes; the next folds in both epochs, once."""
    api, job = airflow.api, JobStore(storage, JOB)
    for stage in ("count", "gate"):
        gates.hold(JOB, "e1", 1, stage)
    api.trigger(JOB, "e1")
    for stage in ("count", "gate"):
        gates.wait_until_reached(JOB, "e1", 1, stage)
    gates.release(JOB, "e1", 1, "gate")
    api.wait_for_task(JOB, "e1", "epoch.wait_for_checkpoint", states={"success"})
    assert api.xcom(JOB, "e1", "epoch.wait_for_checkpoint")["left_out"] == ["count"]
    assert api.task(JOB, "e1", "epoch.count").state == "running"
    gates.release(JOB, "e1", 1, "count")
    api.wait_for_run(JOB, "e1")
    assert api.run_state(JOB, "e1") == "success", api.explain(JOB, "e1")
    assert api.task(JOB, "e1", "epoch.count").state == "skipped"

    api.trigger(JOB, "e2")
    api.wait_for_run(JOB, "e2")
    assert api.run_state(JOB, "e2") == "success", api.explain(JOB, "e2")
    assert job.outcomes() == [(1, 1, "COMPLETED"), (2, 1, "COMPLETED")]
    assert sorted(row["id"] for row in job.state("count", "seen")) == [*range(1000, 1010), *range(2000, 2010)]
    assert job.value("count", "slices") == 2
    assert job.unreferenced() == []
