"""What happens around one stage, on a real Airflow with real spark-submit; what dies in stages: `test_failover*.py`.

Each scenario runs one healthy epoch and then one in which something happens. Afterwards both epochs' rows are in the
state exactly once, the epoch counter says two, and no file lies in the store that nothing refers to.
"""

from __future__ import annotations

import pytest

from scripts.harness.airflow_home import AirflowHome
from tests.e2e.store import JobStore

pytestmark = pytest.mark.e2e

ROWS = [*range(1000, 1100), *range(2000, 2100)]
HEALTHY = (1, 1, "COMPLETED")


@pytest.fixture
def job(request: pytest.FixtureRequest, airflow: AirflowHome, storage: str, healthy: None) -> JobStore:
    """The store of the scenario named like the test, with one epoch completed."""
    name = request.node.name.removeprefix("test_")
    airflow.api.wait_for_run(name, "e1", states={"success", "failed"})
    assert airflow.api.run_state(name, "e1") == "success", airflow.api.explain(name, "e1")
    return JobStore(storage, name)


@pytest.fixture(scope="module")
def healthy(airflow: AirflowHome) -> None:
    """Start every scenario's first epoch at once, so that they run side by side."""
    for dag_id in airflow.api.dag_ids(tag="scenario"):
        airflow.api.trigger(dag_id, "e1")


def start(airflow: AirflowHome, job: JobStore) -> None:
    """Start the scenario's second epoch."""
    airflow.api.trigger(job.coordinator.job, "e2")


def check_recovered(airflow: AirflowHome, job: JobStore, *, tries: int, outcomes: list[tuple[int, int, str]]) -> None:
    """Wait for the second epoch and check that all came out exactly once."""
    name = job.coordinator.job
    airflow.api.wait_for_run(name, "e2")
    assert airflow.api.run_state(name, "e2") == "success", airflow.api.explain(name, "e2")
    assert airflow.api.task(name, "e2", "epoch.count").try_number == tries
    assert job.outcomes() == outcomes
    assert sorted(row["id"] for row in job.state("count", "seen")) == ROWS
    assert job.value("count", "epochs") == 2
    assert job.unreferenced() == []


def test_cleared_after_completion(airflow: AirflowHome, job: JobStore) -> None:
    """An epoch that has completed is never folded in twice: clearing its stage skips it and says why."""
    airflow.api.clear("cleared_after_completion", "e1", ["epoch.count"])
    airflow.api.wait_for_task("cleared_after_completion", "e1", "epoch.count", states={"skipped"})
    log = airflow.api.log("cleared_after_completion", "e1", "epoch.count", 2)
    assert "checkpoint 1" in log
    start(airflow, job)
    check_recovered(airflow, job, tries=1, outcomes=[HEALTHY, (2, 1, "COMPLETED")])


def test_never_opens_an_epoch(airflow: AirflowHome, storage: str) -> None:
    """An application without `Epoch.current()` fails with the way out, and nothing completes."""
    airflow.api.trigger("never_opens_an_epoch", "e1")
    airflow.api.wait_for_run("never_opens_an_epoch", "e1", states={"failed"})
    log = airflow.api.log("never_opens_an_epoch", "e1", "epoch.idle")
    assert "without opening an epoch" in log
    assert "Epoch.current()" in log
    assert JobStore(storage, "never_opens_an_epoch").coordinator.head().completed == ()
