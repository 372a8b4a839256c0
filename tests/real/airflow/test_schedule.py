"""Schedule and pause in a real Airflow (semantics S1, S2)."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pendulum
import pytest

from airflow_cairn.checkpoint.documents.entries import Stopped
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import ON_A_SCHEDULE, Gates
from tests.real.airflow.store import JobStore

pytestmark = pytest.mark.e2e

STEP, PAUSED = timedelta(seconds=5), "paused"


@pytest.mark.side_by_side
def test_windows_meet_and_what_a_pause_missed_is_one_run(airflow: AirflowHome) -> None:  # semantics S2
    api = airflow.api

    def windows() -> list[tuple[datetime, datetime]]:
        found = [
            (datetime.fromisoformat(run["data_interval_start"]), datetime.fromisoformat(run["data_interval_end"]))
            for run in api.runs(ON_A_SCHEDULE)
            if run["run_type"] == "scheduled"
        ]
        return sorted(found)

    facts = api.request("GET", f"/dags/{ON_A_SCHEDULE}")
    assert facts["timetable_description"] == (
        "A checkpoint every 5 seconds, the first one 4 seconds after the start, and none within 2 seconds after another"
    )
    assert facts["timetable_summary"] == "every 5 seconds"
    api.unpause(ON_A_SCHEDULE)
    try:
        wait_until(lambda: len(windows()) >= 2, 600, "two runs of the schedule")
        api.pause(ON_A_SCHEDULE)
        before = windows()
        wait_until(lambda: pendulum.now("UTC") > before[-1][1] + 5 * STEP, 600, "several runs to be missed")
        api.trigger(ON_A_SCHEDULE, "by_hand", logical_date=pendulum.now("UTC"))
        by_hand = api.run(ON_A_SCHEDULE, "by_hand")
        assert by_hand["data_interval_start"] == by_hand["data_interval_end"] == by_hand["logical_date"]
        api.unpause(ON_A_SCHEDULE)
        wait_until(lambda: len(windows()) >= len(before) + 2, 600, "the schedule to go on")
    finally:
        api.pause(ON_A_SCHEDULE)
    after = windows()
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(after)), after
    lengths = [end - start for start, end in after]
    assert all(length % STEP == timedelta(0) for length in lengths), after
    assert max(lengths) >= 3 * STEP, after


@pytest.mark.side_by_side
def test_a_pause_stops_the_job_and_its_end_starts_it(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics S1: in the middle of an epoch. What had acknowledged is taken over, and no try is used up."""
    api, job, run = airflow.api, JobStore(storage, PAUSED), "r1"
    gates.hold(PAUSED, run, 1, "clean")
    api.trigger(PAUSED, run)
    gates.wait_until_reached(PAUSED, run, 1, "clean")
    api.pause(PAUSED)
    gates.release(PAUSED, run, 1, "clean")
    wait_until(lambda: job.coordinator.head().stopped is Stopped.PAUSED, 600, "the job to be stopped")
    assert job.outcomes() == [(1, 1, "CHECKPOINT_COORDINATOR_SUSPEND")]
    assert job.coordinator.head().pending == ()
    api.unpause(PAUSED)
    api.wait_for_run(PAUSED, run)
    assert api.run_state(PAUSED, run) == "success", api.explain(PAUSED, run)
    assert job.outcomes() == [(1, 1, "CHECKPOINT_COORDINATOR_SUSPEND"), (2, 2, "COMPLETED")]
    assert job.coordinator.head().stopped is None
    assert {ti.task_id: ti.try_number for ti in api.task_instances(PAUSED, run)} == dict.fromkeys(
        ("epoch.trigger_checkpoint", "epoch.clean", "epoch.routes", "epoch.wait_for_checkpoint"), 1
    )
    assert "The DAG is paused: what is pending has ended" in api.log(PAUSED, run, "epoch.clean")
    assert job.unreferenced() == []
