"""Life around one stage, on a real Airflow with real spark-submit; what dies in stages: `test_failover*.py`."""

from __future__ import annotations

import pytest

from airflow_cairn.checkpoint.documents import layout
from scripts.harness.airflow_home import AirflowHome
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import COMPLETED, ROWS, Scenario
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]


def test_cleared_after_completion(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """An epoch that has completed is never folded in twice: clearing its stage skips it and says why.

    Its checkpoint has an event of its own asset, and one of its table's, both with the rows that it wrote there.
    """
    job = JobStore(storage, "cleared_after_completion")
    scenario = Scenario(airflow, gates, job)
    scenario.start("e1")
    scenario.ended("e1")
    airflow.api.clear(scenario.name, "e1", ["epoch.count"])
    airflow.api.wait_for_task(scenario.name, "e1", "epoch.count", states={"skipped"})
    assert "checkpoint 1" in scenario.log("e1", "count", 2)
    assert job.outcomes() == [(1, 1, COMPLETED)]
    assert sorted(row["id"] for row in job.state("count", "seen")) == [*range(1000, 1000 + ROWS)]
    assert job.value("count", "epochs") == 1
    assert job.unreferenced() == []
    events = airflow.api.request("GET", f"/assets/events?source_dag_id={scenario.name}")["asset_events"]
    told = {(each["name"], each["extra"]["checkpoint"]): each["extra"] for each in events}
    extra = told.pop(("recent_ids", 1))
    assert (extra["table"], extra["rows"], extra["epoch"]) == ("recent", ROWS, layout.epoch_name("e1"))
    assert told.pop((scenario.name, 1))["rows"] == {"recent": ROWS}
    assert told == {}


@pytest.mark.soak  # tests/unit/operators/stage/test_spark_epoch.py
def test_never_opens_an_epoch(airflow: AirflowHome, storage: str) -> None:
    """An application without `Epoch.current()` fails with the way out, and nothing completes."""
    airflow.api.trigger("never_opens_an_epoch", "e1")
    airflow.api.wait_for_run("never_opens_an_epoch", "e1", states={"failed"})
    log = airflow.api.log("never_opens_an_epoch", "e1", "epoch.idle")
    assert "without opening an epoch" in log
    assert "Epoch.current()" in log
    assert JobStore(storage, "never_opens_an_epoch").coordinator.head().completed == ()
