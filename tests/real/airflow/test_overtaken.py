"""Runs that another run has overtaken, on a real Airflow: they go on by themselves, and nobody clears anything (C2)."""

from __future__ import annotations

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Declined, EpochCompleted, Submit, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.admission import RunState
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore
from tests.support.acking import ack_of

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

FIRST, SECOND = "epoch.first", "epoch.second"


class Runs:
    """The runs of one DAG of `dags/overtaken.py`."""

    def __init__(self, airflow: AirflowHome, gates: Gates, storage: str, dag_id: str) -> None:
        self.airflow, self.gates, self.dag_id = airflow, gates, dag_id
        self.store = JobStore(storage, dag_id)

    @property
    def coordinator(self) -> Coordinator:
        return self.store.coordinator

    def held_at(self, run: str, stage: str) -> None:
        """Start a run whose first attempt stands still in a stage."""
        self.gates.hold(self.dag_id, run, 1, stage)
        self.airflow.api.trigger(self.dag_id, run)
        self.gates.wait_until_reached(self.dag_id, run, 1, stage)

    def waits(self, run: str, task: str) -> None:
        """Wait until a task has put itself off, without using up a try."""
        self.airflow.api.wait_for_task(self.dag_id, run, task, states={"up_for_reschedule"})

    def ended(self, *runs: str) -> None:
        for run in runs:
            self.airflow.api.wait_for_run(self.dag_id, run)
            state = self.airflow.api.run_state(self.dag_id, run)
            assert state == "success", self.airflow.api.explain(self.dag_id, run)

    def tries(self, run: str) -> tuple[int, int]:
        first, second = (self.airflow.api.task(self.dag_id, run, each).try_number for each in (FIRST, SECOND))
        return first, second

    def folded(self) -> list[str]:
        """Give the runs that the newest checkpoint holds, which both stages agree on; nothing lies about."""
        first, second = (self.store.value(stage, "folded") for stage in ("first", "second"))
        assert first == second
        self.coordinator.clean()
        assert self.store.unreferenced() == []
        found: list[str] = first
        return found


def test_of_two_that_overlap_the_second_goes_on(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics C2: e2's second stage is told, first is cleared, and both run again on e1's checkpoint; no retry."""
    runs = Runs(airflow, gates, storage, "overtaken_overlap")
    runs.held_at("e1", "second")
    runs.held_at("e2", "second")
    gates.release(runs.dag_id, "e1", 1, "second")
    runs.ended("e1")
    gates.release(runs.dag_id, "e2", 1, "second")
    runs.ended("e2")
    assert runs.store.outcomes() == [(1, 1, "COMPLETED"), (2, 1, "CHECKPOINT_SUBSUMED"), (3, 2, "COMPLETED")]
    assert runs.folded() == ["e1", "e2"]
    assert runs.tries("e2") == (2, 1), "first was cleared, second came back by itself"


@pytest.mark.soak  # the test below is overtaken too, after a pause
def test_after_an_expiry_that_another_run_overtook(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics D5, T2, C2: e2 takes the place of e1, which waits without using up tries, and goes on after it."""
    runs = Runs(airflow, gates, storage, "overtaken_expiry")
    runs.held_at("e1", "second")
    gates.hold(runs.dag_id, "e2", 1, "first")
    airflow.api.trigger(runs.dag_id, "e2")
    wait_until(lambda: runs.coordinator.head().waiting != (), 600, "e2 to wait in the line")
    assert runs.coordinator.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete in time")
    gates.wait_until_reached(runs.dag_id, "e2", 1, "first")
    gates.release(runs.dag_id, "e1", 1, "second")
    runs.waits("e1", SECOND)
    assert runs.tries("e1") == (1, 2), "the driver of the expired attempt has failed, and nobody who waits"
    gates.release(runs.dag_id, "e2", 1, "first")
    runs.ended("e2", "e1")
    assert runs.store.outcomes() == [(1, 1, "CHECKPOINT_EXPIRED"), (2, 1, "COMPLETED"), (3, 2, "COMPLETED")]
    assert runs.folded() == ["e2", "e1"]
    assert runs.tries("e1") == (2, 2)


def test_after_a_pause_that_another_run_overtook(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics S1, T2, C2: the pause ends e1's attempt, another epoch completes, and e1 runs again on top of it.

    e1 keeps its place over the pause. So the other one comes first only because it takes e1's run for ended.
    """
    runs = Runs(airflow, gates, storage, "overtaken_pause")
    api, job = airflow.api, runs.coordinator
    runs.held_at("e1", "first")
    api.pause(runs.dag_id)
    gates.release(runs.dag_id, "e1", 1, "first")
    wait_until(lambda: job.head().stopped is Stopped.PAUSED, 600, "the stage to see the pause")
    job.unpause()
    _begin_another(job)
    api.unpause(runs.dag_id)
    runs.waits("e1", SECOND)
    _complete_another(job)
    runs.ended("e1")
    expected = [(1, 1, "CHECKPOINT_COORDINATOR_SUSPEND"), (2, 1, "COMPLETED"), (3, 2, "COMPLETED")]
    assert runs.store.outcomes() == expected
    assert runs.folded() == ["another", "e1"]
    assert runs.tries("e1") == (2, 1), "first was cleared, second came back by itself"


def _begin_another(job: Coordinator) -> None:
    """Do what another run's trigger does; it is no run of this Airflow, so that it cannot come too late."""
    stages = (StageSpec("first"), StageSpec("second", ("first",)))
    config = CheckpointConfig(retained=3)
    request = TriggerRequest(layout.epoch_name("another"), Slice(), stages, config)
    waits = job.trigger(request)
    assert isinstance(waits, Declined)
    assert waits.position == 2
    answer = job.trigger(request, lambda _: RunState.ENDED)
    assert isinstance(answer, Triggered), answer


def _complete_another(job: Coordinator) -> None:
    """Let its stages acknowledge, complete its checkpoint, and clean, which takes what e1 had written."""
    epoch = layout.epoch_name("another")
    for stage in ("first", "second"):
        begun = job.begin(epoch, stage, f"{stage} of another")
        assert isinstance(begun, Submit), begun
        job.acknowledge(ack_of(begun.handover, values={"folded": ["another"]}))
    assert job.complete(2) == EpochCompleted(epoch, 2)
    job.clean()
