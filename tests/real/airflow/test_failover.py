"""Stages that run again after a failure, on a real Airflow: the rows of docs/failover.md.

Each test says how often each task ran and `spark-submit` was started, which checkpoints there were, that the state is
what a plain recomputation gives, and that no file is left that nothing refers to.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from scripts.harness.wait import wait_until
from tests.real.airflow.scenario import COMPLETED, FAILOVER, ON_CONNECT, ON_SUBMIT, WAIT, Scenario, kill_driver
from tests.support.metrics_sink import counted

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]


@ON_CONNECT
def test_the_failed_stage_runs_again_1(scenario: Scenario) -> None:
    """semantics F1, F2: a → b → c, b's driver is killed: b runs again, a and c run once.

    The job's asset has one event, of the checkpoint that completed; and each metric has arrived once, whichever of the
    tasks, callbacks and the triggerer won the swap.
    """
    scenario.killed_at("e1", "b.written")
    scenario.check(
        "e1",
        tries={"a": 1, "b": 2, "c": 1},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1, "c": 1},
    )
    (event,) = scenario.airflow.api.request("GET", f"/assets/events?source_dag_id={scenario.name}")["asset_events"]
    assert (event["name"], event["source_run_id"], event["source_task_id"]) == ("failover_1", "e1", WAIT)
    told = event["extra"]
    assert (told["checkpoint"], told["run_id"]) == (2, "e1")
    arrived = partial(counted, scenario.gates.metrics, scenario.name)
    wait_until(lambda: "cairn.checkpoint.new_bytes" in arrived(), 60, "the metrics of the completed checkpoint")
    metrics = arrived()
    assert metrics.pop("cairn.checkpoint.new_bytes") > 0
    assert metrics == {
        "cairn.checkpoint.triggered": 2,
        f"cairn.checkpoint.failed {FAILOVER}": 1,
        "cairn.failovers": 1,
        "cairn.checkpoint.completed": 1,
        "cairn.checkpoint.acknowledgements": 3,
    }


@ON_CONNECT
def test_the_region_runs_again_2(scenario: Scenario) -> None:
    """semantics F1, F2: a ~ b → c, b's driver is killed: a and b run again, c runs once."""
    scenario.killed_at("e1", "b.written")
    scenario.check(
        "e1",
        tries={"a": 2, "b": 2, "c": 1},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
        ways={"a": 1, "b": 1, "c": 1},
    )
    assert "Cleared, to run again: a" in scenario.log("e1", "b", 1)
    note: Any = scenario.task("e1", "a").raw["note"]
    assert note == "Cairn: region failover of checkpoint 2, `b` failed, attempt 2"
    job = f"Cairn: {scenario.name}: "
    assert scenario.task("e1", "b").raw["note"].startswith(f"{job}`b` failed ("), "the next try keeps it"
    run = scenario.airflow.api.request("GET", f"/dags/{scenario.name}/dagRuns/e1")
    assert run["note"] == f"{job}checkpoint 2 completed · attempt 2 · started empty"


@pytest.mark.side_by_side(80)
@ON_CONNECT
def test_a_running_sibling_is_stopped_first_3(scenario: Scenario) -> None:
    """semantics F3: a diamond, all pipelined; b dies while c runs, and c's driver is gone before c runs again."""
    scenario.hold("e1", 2, "c.started")
    dying, running = scenario.stopped_at("e1", "b", "c.written")
    kill_driver(dying)
    scenario.reached("e1", 2, "c.started")
    assert not running.is_running()
    scenario.release("e1", 2, "c.started")
    scenario.check(
        "e1", tries={"a": 2, "b": 2, "c": 2, "d": 1}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)], ways={"c": 1}
    )


@pytest.mark.soak  # test_shapes.py has other regions that run on
@ON_SUBMIT
def test_a_sibling_of_another_region_runs_on_4(scenario: Scenario) -> None:
    """semantics F1, F2: a diamond, all blocking; b dies while c runs, and c's own driver acknowledges."""
    scenario.hold("e1", 2, "b")
    dying, running = scenario.stopped_at("e1", "b", "c")
    kill_driver(dying)
    scenario.reached("e1", 2, "b")
    assert running.is_running()
    scenario.release("e1", 2, "b")
    scenario.release("e1", 1, "c")
    scenario.check("e1", tries={"a": 1, "b": 2, "c": 1, "d": 1}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)])


@pytest.mark.soak  # tests/unit/operators/failure/test_retry_policy.py, and a run after a failed one in test_hands.py
@ON_CONNECT
def test_what_failed_for_good_costs_its_epoch_alone_5(scenario: Scenario) -> None:
    """semantics F4, R1: a → b, b fails of what no retry cures; the next run goes on from the last checkpoint."""
    scenario.start("e1")
    scenario.ended("e1")
    scenario.fail_permanently("e2", "b")
    scenario.start("e2")
    scenario.ended("e2", "failed")
    scenario.start("e3")
    assert scenario.tries("e2", "ab") == scenario.submissions("e2") == {"a": 1, "b": 1}
    scenario.check(
        "e3",
        tries={"a": 1, "b": 1},
        outcomes=[(1, 1, COMPLETED), (2, 1, "JOB_FAILURE"), (3, 1, COMPLETED)],
        ways={"b": 1},
        epochs=(1, 3),
    )
    ended = scenario.store.coordinator.head().history[-1]
    assert (ended.id, ended.restored_from) == (3, 1)


@pytest.mark.soak  # tests/protocol/test_region_lives.py loses outputs; row 2 runs two stages again
@ON_CONNECT
def test_a_missing_output_is_written_again_6(scenario: Scenario) -> None:
    """semantics F1: a → b; what a wrote is deleted before b dies, so a runs again too, through a blocking exchange."""
    (driver,) = scenario.stopped_at("e1", "b")
    scenario.lose_output(1, "a")
    kill_driver(driver)
    scenario.check("e1", tries={"a": 2, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)], ways={"a": 1})


@pytest.mark.soak
@ON_CONNECT
def test_a_truncated_output_is_written_again_7(scenario: Scenario) -> None:
    """semantics F1: a → b; one file of what a wrote is cut short before b dies, so a runs again too."""
    (driver,) = scenario.stopped_at("e1", "b")
    scenario.shorten_output(1, "a")
    kill_driver(driver)
    scenario.check("e1", tries={"a": 2, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)], ways={"a": 1})


@pytest.mark.soak  # test_shapes.py has such an instance
@ON_SUBMIT
def test_one_instance_of_a_mapped_stage_runs_again_13(scenario: Scenario) -> None:
    """semantics F1, F2: a → b[3 mapped] → c, one instance's driver is killed: that instance alone runs again."""
    scenario.killed_at("e1", "b-1")
    scenario.check(
        "e1", tries={"a": 1, "b-0": 1, "b-1": 2, "b-2": 1, "c": 1}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)]
    )


@pytest.mark.soak  # tests/protocol/test_region_lives.py has regions that fail at once
@ON_SUBMIT
def test_two_regions_fail_at_once_14(scenario: Scenario) -> None:
    """semantics F2, F5: a and b have nothing in common but the checkpoint, and both die: each runs again once."""
    scenario.killed_at("e1", "a", "b")
    scenario.check("e1", tries={"a": 2, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, FAILOVER), (3, 3, COMPLETED)])


@ON_SUBMIT
def test_cleared_by_hand_where_the_api_refuses_19(scenario: Scenario) -> None:
    """a ~ b: the callback and the next try say what to clear; somebody does, and all is as if Cairn had."""
    scenario.killed_at("e1", "b")
    scenario.ended("e1", "failed")
    for number in (1, 2):
        log = scenario.log("e1", "b", number)
        assert "Airflow's API does not take the token" in log
        assert "run e1, choose Clear Task Instance at epoch.a, epoch.b, with Downstream switched on" in log
        assert "no-token-of-this-airflow" not in log
    assert scenario.tries("e1", "ab") == {"a": 1, "b": 2}
    scenario.airflow.api.clear(scenario.name, "e1", ["epoch.a", "epoch.b"], downstream=True)
    scenario.check(
        "e1",
        tries={"a": 2, "b": 3},
        # b's second try said what to clear, and ended.
        submissions={"a": 2, "b": 2},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)],
    )
