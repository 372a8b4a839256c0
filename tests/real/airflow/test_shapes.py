"""Regions, plain tasks, mapped, skipped and several first stages on a real Airflow."""

from __future__ import annotations

from datetime import datetime

import pytest

from scripts.harness.airflow_home import AirflowHome
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import kill_driver
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

JOB = "shapes"
RUN = "e1"


def test_each_failure_runs_its_region_again_and_nothing_else(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics F1, F2: an instance of a mapped stage dies alone; then `europe` dies, and with it goes what it is
    pipelined with, and the plain tasks between the two."""
    api, job = airflow.api, JobStore(storage, JOB)
    for attempt, stage in ((1, "parts-1"), (1, "europe"), (2, "parts-1")):
        gates.hold(JOB, RUN, attempt, stage)
    api.trigger(JOB, RUN)
    instance = gates.wait_until_reached(JOB, RUN, 1, "parts-1")
    driver = gates.wait_until_reached(JOB, RUN, 1, "europe")
    kill_driver(instance)
    gates.wait_until_reached(JOB, RUN, 2, "parts-1")
    gates.release(JOB, RUN, 2, "parts-1")
    kill_driver(driver)
    api.wait_for_run(JOB, RUN)
    assert api.run_state(JOB, RUN) == "success", api.explain(JOB, RUN)

    found = {(ti.task_id.removeprefix("epoch."), ti.map_index): ti for ti in api.task_instances(JOB, RUN)}
    assert {task: ti.try_number for task, ti in found.items() if ti.state == "success"} == {
        ("trigger_checkpoint", -1): 1,
        ("clean", -1): 2,
        ("check", -1): 2,
        ("choose", -1): 2,
        ("europe", -1): 2,
        ("parts", 0): 1,
        ("parts", 1): 2,
        ("report", -1): 1,
        ("wait_for_checkpoint", -1): 1,
    }
    assert found["asia", -1].state == "skipped"
    assert "stage asia was skipped: it goes on with its state unchanged" in api.log(JOB, RUN, "epoch.report")
    assert api.xcom(JOB, RUN, "epoch.wait_for_checkpoint")["acks"] == 6
    assert job.outcomes() == [(1, 1, "JOB_FAILOVER_REGION"), (2, 2, "JOB_FAILOVER_REGION"), (3, 3, "COMPLETED")]
    folded = {stage: job.value(stage, "folded") for stage in ("clean", "europe", "parts-0", "parts-1", "report")}
    assert folded == {stage: [RUN] for stage in folded}
    assert job.unreferenced() == []


def test_of_several_first_stages_another_triggers_where_one_is_killed(
    airflow: AirflowHome, gates: Gates, storage: str
) -> None:
    """semantics T10, T7: the task that triggers is killed while a master hook is asked; no task of its own triggers."""
    api, job, dag = airflow.api, JobStore(storage, "first_stages"), "first_stages"
    gates.hold(dag, RUN, 1, "hook")
    api.trigger(dag, RUN)
    gates.wait_until_reached(dag, RUN, 1, "hook").kill()
    gates.release(dag, RUN, 1, "hook")
    api.wait_for_run(dag, RUN)
    assert api.run_state(dag, RUN) == "success", api.explain(dag, RUN)

    asked = (gates.folder / "asked").read_text().split()
    assert len(asked) == len(set(asked)) == 2, "by the one that was killed, and by one other process"
    found = {(ti.task_id.removeprefix("epoch."), ti.map_index): ti for ti in api.task_instances(dag, RUN)}
    first = [("one", -1), ("two", -1), ("several", 0), ("several", 1)]
    assert sorted(found[each].try_number for each in first) == [1, 1, 1, 2]
    trigger = found["trigger_checkpoint", -1]
    assert (trigger.state, trigger.raw["pid"], trigger.raw["hostname"] or "") == ("success", None, ""), "no worker ran"
    scheduled = [found[each].raw["scheduled_when"] for each in first[:2] if found[each].try_number == 1]
    passed_over = datetime.fromisoformat(trigger.raw["start_date"])
    assert scheduled, "one was killed at most"
    assert all(datetime.fromisoformat(each) <= passed_over for each in scheduled), "in the same round of the scheduler"
    told = api.xcom(dag, RUN, "epoch.trigger_checkpoint")
    assert (told["checkpoint"], told["attempt"], told["epoch"]) == (1, 1, RUN)
    assert job.outcomes() == [(1, 1, "COMPLETED")]
    assert job.coordinator.head().triggering == ()
    assert job.unreferenced() == []
