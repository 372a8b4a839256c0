"""Stages that run again where more dies than a driver: Airflow's own processes, callbacks, the storage, time itself.

The rows of docs/failover.md that `test_failover.py` leaves.
"""

from __future__ import annotations

from functools import partial

import pytest

from airflow_cairn.checkpoint.documents.attempt import Handover
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import COMPLETED, FAILOVER, ON_SUBMIT, Scenario, kill_driver, kill_task, on_s3
from tests.real.airflow.store import JobStore
from tests.support.acking import ack_of
from tests.support.s3_proxy import Rule, S3Proxy, lose_the_request
from tests.support.service_stand_ins import DONE, RUNNING, LivyStandIn

pytestmark = pytest.mark.e2e

EXPIRED = "CHECKPOINT_EXPIRED"
WAITS = "Waiting for the store since "
POINTS = ("started", "writing", "written", "acknowledged")
"""Points of an application at which row 21 kills it, in order."""
DIES = {"e1": "a", "e2": "b", "e3": "c"}
"""The stage that row 21 kills in each run."""
LAUNCHED = "deferred"
"""The DAG with a stage on a service, beside row 10."""


@pytest.mark.soak  # tests/protocol/model/ and tests/chaos/protocol/ have late drivers
@pytest.mark.side_by_side(60)
@ON_SUBMIT
def test_a_zombie_acknowledges_late_8(scenario: Scenario) -> None:
    """semantics A2, F3, F5: b's task process is killed, its driver lives on: told DISCARDED, its files deleted."""
    scenario.hold("e1", 2, "b.written")
    (zombie,) = scenario.stopped_at("e1", "b.written")
    kill_task(zombie)
    scenario.reached("e1", 2, "b.written")
    assert zombie.is_running()
    files = scenario.store.files
    assert list(files.listing("chk-0000000001/state/b/"))
    scenario.release("e1", 1, "b.written")
    zombie.wait(timeout=600)
    assert "the head answered DISCARDED" in scenario.told("e1", 1, "b")
    assert list(files.listing("chk-0000000001/state/b/")) == []
    scenario.release("e1", 2, "b.written")
    scenario.check("e1", tries={"a": 1, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)], ways={"b": 1})


@pytest.mark.soak  # Airflow's own; where a task has died it is row 12
def test_the_scheduler_dies_9(scenario: Scenario) -> None:
    """b ends well while there is no scheduler; the next one goes on from there, and nothing runs again."""
    airflow = scenario.airflow
    scenario.stopped_at("e1", "b")
    # Alone, as an out-of-memory killer does: the executor's workers are its children, and b's task runs on in one.
    airflow.process("scheduler").kill()
    scenario.release("e1", 1, "b")
    airflow.api.wait_for_task(scenario.name, "e1", "epoch.b", states={"success"})
    airflow.kill_component("scheduler")
    airflow.start_component("scheduler")
    scenario.check("e1", tries={"a": 1, "b": 1}, outcomes=[(1, 1, COMPLETED)])


def test_the_triggerer_dies_10(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """The sensor waits in the triggerer, which dies; another one goes on waiting, and nothing runs again.

    So does a stage on a service. Then people act on it while it is deferred: marked failed, its driver is ended by the
    triggerer; cleared, it runs on a driver of its own.
    """
    scenario = Scenario(airflow, gates, JobStore(storage, "failover_10"), group="")
    api, job = airflow.api, JobStore(storage, LAUNCHED)

    def acknowledge(conf: dict[str, str], _looks: int) -> str:
        handover, _ = job.coordinator.files.read(Handover, conf["spark.cairn.handover"])
        job.coordinator.acknowledge(ack_of(handover))
        return DONE

    with LivyStandIn() as livy:
        where = {"conn_type": "livy", "host": "127.0.0.1", "port": int(livy.url.rpartition(":")[2])}
        api.request("POST", "/connections", json={"connection_id": "livy_of_the_test", **where})
        api.trigger(LAUNCHED, "e1")
        scenario.stopped_at("e1", "b")
        api.wait_for_task(scenario.name, "e1", "wait", states={"deferred"})
        api.wait_for_task(LAUNCHED, "e1", "epoch.routes", states={"deferred"})
        airflow.kill_component("triggerer")
        assert livy.live == ["1"]
        pool = api.request("GET", "/pools/default_pool")
        assert (pool["running_slots"], pool["deferred_slots"]) == (1, 2), "b alone holds a worker"
        airflow.start_component("triggerer")
        scenario.release("e1", 1, "b")
        livy.act = acknowledge
        scenario.check("e1", tries={"a": 1, "b": 1}, outcomes=[(1, 1, COMPLETED)])
        api.wait_for_run(LAUNCHED, "e1")
        assert (api.task(LAUNCHED, "e1", "epoch.routes").try_number, livy.submitted) == (1, 1)

        livy.act = lambda _conf, _looks: RUNNING
        api.trigger(LAUNCHED, "e2")
        api.wait_for_task(LAUNCHED, "e2", "epoch.routes", states={"deferred"})
        looks = livy.drivers["2"].looks  # the task's own
        wait_until(lambda: livy.drivers["2"].looks > looks, 120, "the triggerer to look at the driver")
        path = f"/dags/{LAUNCHED}/dagRuns/e2/taskInstances/epoch.routes"
        api.request("PATCH", path, json={"new_state": "failed"})
        wait_until(lambda: livy.killed == ["2"], 60, "the triggerer to end the driver of the marked task")
        api.clear(LAUNCHED, "e2", ["epoch.routes", "epoch.wait_for_checkpoint"])
        wait_until(lambda: livy.submitted == 3, 60, "the cleared task to submit")
        api.wait_for_task(LAUNCHED, "e2", "epoch.routes", states={"deferred"})
        api.clear(LAUNCHED, "e2", ["epoch.routes", "epoch.wait_for_checkpoint"])
        wait_until(lambda: livy.submitted == 4, 60, "the cleared task to submit")
        livy.act = acknowledge
        api.wait_for_run(LAUNCHED, "e2")
        assert livy.killed == ["2", "3"]
        assert [entry[2] for entry in job.outcomes()].count(COMPLETED) == 2


@pytest.mark.side_by_side
@pytest.mark.soak  # tests/protocol/test_races.py reports a failure from many processes at once
@ON_SUBMIT
def test_callbacks_come_again_and_again_11(scenario: Scenario) -> None:
    """semantics F5: five callbacks for one failure, four of them at once, are one failover."""
    scenario.killed_at("e1", "b")
    scenario.check("e1", tries={"a": 1, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)])
    log = scenario.log("e1", "b", 1)
    assert log.count("attempt 2 opened, restoring from nothing") == 1, log
    assert log.count("attempt 2 is open already") + log.count("the failure is settled already") == 4, log


@pytest.mark.soak  # tests/protocol/test_region_lives.py has callbacks that come not at all; test_renewed.py a next try
@ON_SUBMIT
def test_no_callback_comes_12(scenario: Scenario) -> None:
    """semantics F5: task and driver die while there is no dag processor: b's next try settles it.

    The callback comes with the next dag processor, when all is over, and changes nothing.
    """
    airflow = scenario.airflow
    (driver,) = scenario.stopped_at("e1", "b")
    airflow.kill_component("dag-processor")
    kill_task(driver)
    kill_driver(driver)
    expected = [(1, 1, FAILOVER), (2, 2, COMPLETED)]
    scenario.check("e1", tries={"a": 1, "b": 2}, outcomes=expected)
    before = scenario.store.coordinator.head()
    late = "epoch e1 is completed by checkpoint 2; nothing to restore"

    def came() -> int:
        logs = (airflow.home / "logs" / "dag_processor").rglob("failover.py.log")
        return sum(log.read_text().count(late) for log in logs)

    # The line does not name the DAG, and the same one stands there from the other transport.
    came_before = came()
    airflow.start_component("dag-processor")

    def came_again() -> bool:
        # Airflow leaves a callback that it reads while it parses the callback's file until it parses that file again:
        # five minutes later here, unless the file changes.
        (airflow.dags_folder / "failover.py").touch()
        return came() > came_before

    wait_until(came_again, 600, "the late callback", interval=5)
    assert scenario.store.coordinator.head() == before


@pytest.mark.soak  # tests/unit/storage/test_s3_waiting.py waits, and a next try settles in row 12
@pytest.mark.side_by_side(60)
def test_the_storage_is_away_15(scenario: Scenario, s3_server: S3Server) -> None:
    """semantics F2, W3: nothing answers after b has failed; the callback fails, the next try waits and settles it."""
    with S3Proxy(s3_server.endpoint_url) as proxy:
        scenario = on_s3(scenario, s3_server, proxy, "failover_s3", "failover")
        (driver,) = scenario.stopped_at("e1", "b")
        proxy.rules = [Rule(method, "", lose_the_request, 10**6) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")]
        kill_driver(driver)

        def waits() -> bool:
            number = scenario.task("e1", "b").try_number
            return number > 1 and WAITS in scenario.log("e1", "b", number)

        wait_until(waits, 600, "the next try to wait", interval=1)
        proxy.rules = []
        scenario.ended("e1")
        scenario.check_second_attempt()
        # A busy machine may see the wait so late that the try has given up; then it is the one after that.
        last = scenario.task("e1", "b").try_number
        first, *_, again = (scenario.log("e1", "b", number) for number in range(1, last + 1))
        assert "The checkpoint was not restored by this callback" in first
        assert [": submitting" in log for log in (first, again)] == [True, True]
        assert "The store answers again, after " in again


@pytest.mark.soak  # tests/protocol/model/ and tests/unit/operators/stage/test_overtaken_epoch.py
@pytest.mark.side_by_side
def test_a_checkpoint_expires_16(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics D2, D5: b is slow. Where one failure is put up with, it acknowledges for the next attempt; elsewhere
    the job fails, and goes on when its tasks are cleared."""
    api, some, none = airflow.api, "failover_16_some", "failover_16_none"
    stores = {name: JobStore(storage, name) for name in (some, none)}
    for name in stores:
        gates.hold(name, "e1", 1, "b")
        api.trigger(name, "e1")
    for name, store in stores.items():
        gates.wait_until_reached(name, "e1", 1, "b")
        api.wait_for_task(name, "e1", "wait", states={"deferred"})
        store.expire()
    for name, store in stores.items():
        wait_until(partial(_expired, store), 600, f"{name} to expire")
    wait_until(lambda: stores[some].coordinator.head().pending, 600, "the next attempt")
    gates.release(some, "e1", 1, "b")
    assert api.wait_for_run(some, "e1") == "success", api.explain(some, "e1")
    assert [api.task(some, "e1", stage).try_number for stage in "ab"] == [1, 1]

    api.wait_for_task(none, "e1", "wait", states={"failed"})
    said = "allows no more failed ones: checkpoint 1 failed: not complete"
    assert said in api.log(none, "e1", "wait"), api.log(none, "e1", "wait")
    gates.release(none, "e1", 1, "b")
    assert api.wait_for_run(none, "e1") == "failed", api.explain(none, "e1")
    assert stores[none].coordinator.head().completed == ()
    # The sensor only looks: b's next try opens the attempt that it may wait for.
    api.clear(none, "e1", ["b"])
    api.wait_for_task(none, "e1", "b", states={"success"})
    # A run that the scheduler is about to end ends in spite of a clear (measured), so the clear comes after that.
    assert api.wait_for_run(none, "e1") == "failed", api.explain(none, "e1")
    api.clear(none, "e1", ["wait"])
    assert api.wait_for_run(none, "e1") == "success", api.explain(none, "e1")
    assert [api.task(none, "e1", stage).try_number for stage in "ab"] == [1, 2]
    for store in stores.values():
        assert store.outcomes() == [(1, 1, EXPIRED), (2, 2, COMPLETED)]
        assert [store.value(stage, "folded") for stage in "ab"] == [["e1"], ["e1"]]
        assert store.unreferenced() == []


@pytest.mark.side_by_side
@pytest.mark.soak
@ON_SUBMIT
def test_three_runs_at_once_17(scenario: Scenario) -> None:
    """semantics T2, B1: the first run fails and retries while two others wait; the epochs keep their order."""
    api, name = scenario.airflow.api, scenario.name
    (driver,) = scenario.stopped_at("e1", "b")
    for run in ("e2", "e3"):
        scenario.start(run)
        api.wait_for_task(name, run, "epoch.a", states={"deferred"})
    kill_driver(driver)
    for run in ("e1", "e2", "e3"):
        scenario.ended(run)
    history = scenario.store.coordinator.head().history
    assert [entry.restored_from for entry in history] == [None, None, 2, 3]
    assert [scenario.tries(run, "ab") for run in ("e2", "e3")] == [{"a": 1, "b": 1}] * 2
    scenario.check(
        "e1",
        tries={"a": 1, "b": 2},
        outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED), (3, 1, COMPLETED), (4, 1, COMPLETED)],
        epochs=(1, 2, 3),
    )


@pytest.mark.soak  # crash points are at each write; rows 1 and 2 kill a driver that has written
@pytest.mark.side_by_side(60)
@pytest.mark.parametrize("kind", ["some", "each"])
def test_each_stage_dies_at_each_point_21(airflow: AirflowHome, gates: Gates, storage: str, kind: str) -> None:
    """semantics A2, A5, F1, F2: four runs or twelve; before its ack a stage runs again, after it nothing does."""
    scenarios = [Scenario(airflow, gates, JobStore(storage, f"failover_21_{kind}_{point}")) for point in POINTS]
    pairs = list(zip(scenarios, POINTS, strict=True))
    some = zip(POINTS, "abca", strict=True)
    runs_of = dict.fromkeys(POINTS, DIES) if kind == "each" else {point: {"e1": dies} for point, dies in some}
    # Before it has done anything, the stand-in stands at its stage's bare name.
    deaths = [
        (each, run, dies if point == "started" else f"{dies}.{point}")
        for each, point in pairs
        for run, dies in runs_of[point].items()
    ]
    for each, run, where in deaths:
        each.hold(run, 1, where)
        each.start(run)

    def standing() -> list[tuple[Scenario, str, str]]:
        return [(each, run, where) for each, run, where in deaths if gates.stands(each.name, run, 1, where)]

    while deaths:
        for each, run, where in wait_until(standing, 600, "a driver to stand where it is to die"):
            kill_driver(each.reached(run, 1, where))
            deaths.remove((each, run, where))
    for each, point in pairs:
        runs = runs_of[point]
        for run, dies in runs.items():
            each.ended(run)
            assert each.tries(run, "abc") == {stage: 1 + (stage == dies) for stage in "abc"}
            submitted_again = point != "acknowledged"
            assert each.submissions(run) == {stage: 1 + (stage == dies and submitted_again) for stage in "abc"}
            assert (": submitting" in each.log(run, dies, 2)) == submitted_again
        twice = [(1, FAILOVER), (2, COMPLETED)] if point != "acknowledged" else [(1, COMPLETED)]
        again = {stage: 1 + (stage == dies) for stage in "abc"}
        each.check(
            run,
            tries=again,
            submissions=dict.fromkeys("abc", 1) if point == "acknowledged" else again,
            outcomes=[(number, *what) for number, what in enumerate(twice * len(runs), start=1)],
            epochs=range(1, len(runs) + 1),
        )


@pytest.mark.side_by_side
@pytest.mark.soak  # tests/real/spark/test_killed_at_writes.py kills a driver at any write
@ON_SUBMIT
def test_a_driver_dies_at_each_point_21_in_spark(scenario: Scenario) -> None:
    """semantics A2, A5, F1: row 21 in Spark: half-written output goes, acknowledged output stays."""
    # Each point costs two JVMs by spark-submit, and there the runs above show the others.
    points = POINTS if scenario.on_connect else ("writing",)
    runs = {f"e{number}": point for number, point in enumerate(points, start=1)}
    expected: list[tuple[int, str]] = []
    for run, point in runs.items():
        scenario.killed_at(run, f"b.{point}")
        again = point != "acknowledged"
        scenario.ended(run)
        assert scenario.tries(run, "b") == {"b": 2}
        assert scenario.submissions(run) == {"b": 2 if again else 1}
        expected += [(1, FAILOVER), (2, COMPLETED)] if again else [(1, COMPLETED)]
    scenario.check(
        run,
        tries={"b": 2},
        submissions={"b": 2 if again else 1},
        outcomes=[(number, *what) for number, what in enumerate(expected, start=1)],
        ways={"b": 1},
        epochs=range(1, len(runs) + 1),
    )


def _expired(store: JobStore) -> bool:
    return store.outcomes() == [(1, 1, EXPIRED)]
