"""What dies, when, and what must come of it, on a real Airflow with real spark-submit.

Each scenario runs one healthy epoch and then one in which something is killed. Afterwards both epochs' rows are in the
state exactly once, the epoch counter says two, and no file lies in the store that nothing refers to.
"""

from __future__ import annotations

import signal

import psutil
import pytest

from scripts.harness.airflow_home import AirflowHome
from tests.e2e.conftest import Gates, kill_driver
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
    task = "count" if name == "triggerer_restarted" else "epoch.count"
    airflow.api.wait_for_run(name, "e2")
    assert airflow.api.run_state(name, "e2") == "success", airflow.api.explain(name, "e2")
    assert airflow.api.task(name, "e2", task).try_number == tries
    assert job.outcomes() == outcomes
    assert sorted(row["id"] for row in job.state("count", "seen")) == ROWS
    assert job.value("count", "epochs") == 2
    assert job.unreferenced() == []


def test_killed_while_writing(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """semantics F2, A5: half-written state is of no attempt."""
    gates.hold("killed_while_writing", "e2", 1, "writing")
    start(airflow, job)
    kill_driver(gates.wait_until_reached("killed_while_writing", "e2", 1, "writing"))
    outcomes = [HEALTHY, (2, 1, "JOB_FAILOVER_REGION"), (3, 2, "COMPLETED")]
    check_recovered(airflow, job, tries=2, outcomes=outcomes)


def test_killed_before_ack(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """semantics A5: state that is written and not acknowledged does not count."""
    gates.hold("killed_before_ack", "e2", 1, "written")
    start(airflow, job)
    kill_driver(gates.wait_until_reached("killed_before_ack", "e2", 1, "written"))
    outcomes = [HEALTHY, (2, 1, "JOB_FAILOVER_REGION"), (3, 2, "COMPLETED")]
    check_recovered(airflow, job, tries=2, outcomes=outcomes)


def test_killed_after_ack(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """semantics A2: what is acknowledged counts, whatever becomes of the driver; nothing runs again."""
    gates.hold("killed_after_ack", "e2", 1, "acknowledged")
    start(airflow, job)
    kill_driver(gates.wait_until_reached("killed_after_ack", "e2", 1, "acknowledged"))
    check_recovered(airflow, job, tries=2, outcomes=[HEALTHY, (2, 1, "COMPLETED")])
    log = airflow.api.log("killed_after_ack", "e2", "epoch.count", 2)
    assert "acknowledged" in log
    assert "spark-submit" not in log.lower()


def test_task_process_killed(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """semantics F5: no callback runs in the task; the scheduler's heartbeat timeout finds it, the next try recovers."""
    gates.hold("task_process_killed", "e2", 1, "written")
    start(airflow, job)
    jvm = gates.wait_until_reached("task_process_killed", "e2", 1, "written")
    kill_task_processes(jvm)
    kill_driver(jvm)
    outcomes = [HEALTHY, (2, 1, "JOB_FAILOVER_REGION"), (3, 2, "COMPLETED")]
    check_recovered(airflow, job, tries=2, outcomes=outcomes)


def test_zombie_acks_late(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """semantics A2, F3: a driver that outlives its task is told DISCARDED, and what it wrote is deleted."""
    gates.hold("zombie_acks_late", "e2", 1, "written")
    gates.hold("zombie_acks_late", "e2", 2, "written")
    start(airflow, job)
    zombie = gates.wait_until_reached("zombie_acks_late", "e2", 1, "written")
    kill_task_processes(zombie)
    gates.wait_until_reached("zombie_acks_late", "e2", 2, "written")
    assert zombie.is_running()
    written = {entry.key for entry in job.files.listing("chk-0000000002/state/")}
    assert written
    gates.release("zombie_acks_late", "e2", 1, "written")
    zombie.wait(timeout=60)
    assert list(job.files.listing("chk-0000000002/state/")) == []
    gates.release("zombie_acks_late", "e2", 2, "written")
    outcomes = [HEALTHY, (2, 1, "JOB_FAILOVER_REGION"), (3, 2, "COMPLETED")]
    check_recovered(airflow, job, tries=2, outcomes=outcomes)


def test_triggerer_restarted(airflow: AirflowHome, gates: Gates, job: JobStore) -> None:
    """The sensor waits in the triggerer; the triggerer dies and another one goes on waiting."""
    gates.hold("triggerer_restarted", "e2", 1, "written")
    start(airflow, job)
    gates.wait_until_reached("triggerer_restarted", "e2", 1, "written")
    airflow.api.wait_for_task("triggerer_restarted", "e2", "wait", states={"deferred"})
    airflow.kill_component("triggerer")
    airflow.start_component("triggerer")
    gates.release("triggerer_restarted", "e2", 1, "written")
    check_recovered(airflow, job, tries=1, outcomes=[HEALTHY, (2, 1, "COMPLETED")])


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


def kill_task_processes(jvm: psutil.Process) -> None:
    """Kill the Airflow processes above a driver, up to the executor's worker, and leave the driver alive.

    The driver is `spark-submit`, below the task's own process, below its supervisor.
    """
    above = [process for process in jvm.parents() if "airflow" in " ".join(process.cmdline())]
    task, supervisor = above[0], above[1]
    for victim in (supervisor, task):
        victim.send_signal(signal.SIGKILL)
    psutil.wait_procs([supervisor, task], timeout=10)
