"""Stages that run again where people or other programs reach into a run: they edit its file, clear, pause, delete.

The rows of docs/failover.md that the other modules leave. Where a text says what to do, the test does it.
"""

from __future__ import annotations

import json
import re

import pytest

from airflow_cairn.checkpoint.documents.entries import Stopped
from scripts.harness.wait import wait_until
from tests.real.airflow.scenario import COMPLETED, FAILOVER, WAIT, Scenario, kill_driver

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

FAILED, SUSPENDED = "JOB_FAILURE", "CHECKPOINT_COORDINATOR_SUSPEND"


@pytest.mark.soak  # tests/unit/sensors/test_ended_stages.py, and both ways in tests/protocol/advice/
def test_the_dag_file_loses_a_stage_24(scenario: Scenario) -> None:
    """semantics C1: while b runs. The wait fails at once and names the stage; both ways that it names heal the run."""
    name, api = scenario.name, scenario.airflow.api
    file = scenario.airflow.dags_folder / f"{name}.py"
    whole = file.read_text()

    def stages_become(text: str, count: int) -> None:
        file.write_text(text)
        tasks = f"/dags/{name}/tasks"
        wait_until(lambda: api.request("GET", tasks)["total_entries"] == count + 2, 600, f"{count} stages to be parsed")

    def loses_c(run: str) -> str:
        """Let the file lose the stage while its run stands before it; gives what the wait says."""
        scenario.stopped_at(run, "b")
        stages_become(whole.replace('("a", "b", "c")', '("a", "b")'), 2)
        scenario.release(run, 1, "b")
        scenario.ended(run, "failed")
        said = api.log(name, run, WAIT)
        assert "the DAG file no longer has c, which this run's checkpoint expects" in said
        assert scenario.task(run, "wait_for_checkpoint").try_number == 1
        return said

    first_way = re.search(r"choose Clear Task Instance at ([\w.]+), with Downstream", loses_c("e1"))
    assert first_way, "it names the task that triggers"
    api.clear(name, "e1", [first_way[1]], downstream=True)
    scenario.ended("e1")
    stages_become(whole, 3)
    assert "put c back into the file, then clear its task and those that have failed, with Downstream" in loses_c("e2")
    stages_become(whole, 3)
    api.clear(name, "e2", ["epoch.c", WAIT], downstream=True)
    scenario.ended("e2")
    assert [scenario.tries(run, "abc") for run in ("e1", "e2")] == [{"a": 2, "b": 2, "c": 0}, {"a": 1, "b": 1, "c": 1}]
    assert scenario.store.outcomes() == [(1, 1, FAILOVER), (2, 2, FAILOVER), (3, 3, COMPLETED), (4, 1, COMPLETED)]
    assert [scenario.store.value(stage, "folded") for stage in "abc"] == [["e1", "e2"], ["e1", "e2"], ["e2"]]
    assert scenario.store.unreferenced() == []


@pytest.mark.soak  # tests/protocol/advice/ fails a run, lets another complete and clears it; so does test_hands.py
def test_a_failed_run_goes_on_after_others_25(scenario: Scenario) -> None:
    """semantics T9, F2: b fails in e1, e2 completes; cleared with Downstream, e1's b goes on, on top of e2."""
    scenario.fail_permanently("e1", "b")
    scenario.start("e1")
    scenario.ended("e1", "failed")
    scenario.start("e2")
    scenario.ended("e2")
    (scenario.gates.folder / "fail" / scenario.name / "e1" / "b").unlink()
    scenario.airflow.api.clear(scenario.name, "e1", ["epoch.b"], downstream=True)
    scenario.ended("e1")
    assert scenario.tries("e1", "ab") == {"a": 2, "b": 2}
    assert scenario.store.outcomes() == [(1, 1, FAILOVER), (2, 2, FAILED), (3, 1, COMPLETED), (4, 3, COMPLETED)]
    assert [scenario.store.value(stage, "folded") for stage in "ab"] == [["e2", "e1"]] * 2
    assert scenario.store.unreferenced() == []


@pytest.mark.soak  # tests/protocol/advice/ pauses beside another run, test_sources.py has two runs that read files
def test_a_pause_beside_a_second_run_with_a_source_26(scenario: Scenario) -> None:
    """semantics S1, T8: paused in the middle of e1 while e2 waits for its place; each file is read once."""
    name, api = scenario.name, scenario.airflow.api
    head = scenario.store.coordinator.head
    folder = scenario.gates.folder.parent / "arriving"
    folder.mkdir()
    (folder / "1.txt").write_text("1")
    scenario.stopped_at("e1", "a")
    (folder / "2.txt").write_text("2")
    scenario.start("e2")
    api.wait_for_task(name, "e2", "epoch.a", states={"deferred"})
    api.pause(name)
    scenario.release("e1", 1, "a")
    wait_until(lambda: head().stopped is Stopped.PAUSED, 600, "the job to be stopped")
    api.unpause(name)
    for run in ("e1", "e2"):
        scenario.ended(run)
    read = {}
    for path in (scenario.gates.folder / "read" / name).rglob("a"):
        part = json.loads(path.read_text())["sources"]["files"]["files"]
        read[path.parts[-3]] = [file["key"] for file in part]
    assert read == {"e1": ["1.txt"], "e2": ["2.txt"]}
    scenario.check(
        "e2", tries={"a": 1, "b": 1}, outcomes=[(1, 1, SUSPENDED), (2, 2, COMPLETED), (3, 1, COMPLETED)], epochs=(1, 2)
    )


@pytest.mark.soak  # tests/protocol/advice/ and tests/chaos/protocol/ delete it
def test_a_handover_is_deleted_27(scenario: Scenario) -> None:
    """semantics F1, F5: a ~ b; a has acknowledged, its handover is deleted, b's driver dies: both run again."""
    (driver,) = scenario.stopped_at("e1", "b")
    handovers = [each.key for each in scenario.store.files.listing("chk-0000000001/handover/a/")]
    assert len(handovers) == 1
    assert scenario.store.files.delete(handovers) == []
    kill_driver(driver)
    scenario.check("e1", tries={"a": 2, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)])
