"""A day that a scheduled run has read is not read again by "Trigger", on a real Airflow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

DAG_ID, FIRST = "read_once", "epoch.read"


def test_a_run_by_hand_inside_a_day_that_was_read_is_skipped(airflow: AirflowHome, storage: str) -> None:
    """semantics T8: no second fold of the day, and the log names the checkpoint and both ways on."""
    api, job = airflow.api, JobStore(storage, DAG_ID)
    api.unpause(DAG_ID)

    def two_days() -> bool:
        return [run["state"] for run in api.runs(DAG_ID)] == ["success", "success"]

    wait_until(two_days, 600, "two scheduled days")
    days = [(1, 1, "COMPLETED"), (2, 1, "COMPLETED")]
    assert job.outcomes() == days

    noon = datetime(2001, 1, 2, 12, tzinfo=UTC)
    api.trigger(DAG_ID, "by_hand", logical_date=noon)
    api.wait_for_run(DAG_ID, "by_hand")
    assert api.run_state(DAG_ID, "by_hand") == "success", api.explain(DAG_ID, "by_hand")
    assert api.task(DAG_ID, "by_hand", FIRST).state == "skipped"
    said = api.log(DAG_ID, "by_hand", FIRST)
    read = "checkpoint 1 has read 2001-01-01T00:00:00+00:00 to 2001-01-02T00:00:00+00:00"
    for text in ("the run by_hand is skipped", read, "read_again"):
        assert text in said
    assert job.outcomes() == days, "the state is what it was"

    api.trigger(DAG_ID, "again", logical_date=noon.replace(hour=13), conf={"cairn": {"read_again": True}})
    api.wait_for_run(DAG_ID, "again")
    assert job.outcomes() == [*days, (3, 1, "COMPLETED")], "asked for, it is read once more"
