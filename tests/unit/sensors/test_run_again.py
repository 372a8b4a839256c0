"""Stages whose changes a listener could not commit run again before the checkpoint completes (semantics C4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, TaskDeferred

from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.extensions import listeners
from airflow_cairn.checkpoint.extensions.committables import Committable
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.triggers import CheckpointTrigger
from tests.support.airflow_fixtures import Define
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import OneRun, airflow_api
from tests.support.trigger_events import payload
from tests.support.world.listeners import Listener

RUN = "manual__r1"
SUCCESS = {("epoch.a", -1): "success", ("epoch.b", -1): "success", ("epoch.c", -1): "success"}


@dataclass
class Looking(Listener):
    """Cannot commit what a stage has staged, as often as it says."""

    overtaken: int = 1
    asked: list[int] = field(default_factory=list)
    fails: bool = False
    hangs: bool = False
    go_on: Event = field(default_factory=Event)

    def runs_again(self, committables: Sequence[Committable]) -> Mapping[str, str]:
        self.asked.append(len(committables))
        if self.fails:
            raise ConnectionError("the catalog is away")
        if self.hangs:
            self.go_on.wait()
        self.overtaken -= 1
        return {"a": "main has moved"} if self.overtaken >= 0 else {}


class Run:
    """A run of a → b, and c beside them, all of which have acknowledged."""

    def __init__(self, job: Job, listener: Listener, *, deferrable: bool) -> None:
        self.job = job
        options: dict[str, Any] = {"storage": job.storage, "listeners": [listener], "deferrable": deferrable}
        with DAG("flights", schedule=None) as self.dag, CheckpointedTaskGroup("epoch", reads_window=False, **options):
            a, b, _ = (SparkEpochOperator(task_id=each, application="x.py") for each in "abc")
            a >> b
        self.execute("trigger_checkpoint")
        self.finish("a", "b", "c")

    def execute(self, name: str) -> Any:
        task: Any = self.dag.get_task(f"epoch.{name}").prepare_for_execution()
        return task.execute(context(Ti(run_id=RUN, task_id=task.task_id, task_states=SUCCESS), task=task))

    def look(self) -> Any:
        """Let the task that waits look, and go on where its trigger has woken it."""
        task: Any = self.dag.get_task("epoch.wait_for_checkpoint")
        at = context(Ti(run_id=RUN, task_id=task.task_id, task_states=SUCCESS), task=task)
        return task.execute(at) if task.deferrable else task.poke(at).xcom_value

    def finish(self, *stages: str) -> None:
        for each in stages:
            self.job.acknowledge(self.job.begin(RUN, each))

    @property
    def pending(self) -> list[int]:
        return [each.attempt for each in self.job.coordinator.head().pending]


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_stage_runs_again(job: Job, connections: Define, deferrable: bool) -> None:
    """Its task and those after it are cleared; what has nothing to do with it stays."""
    listener = Looking()
    run = Run(job, listener, deferrable=deferrable)
    airflow = OneRun({f"epoch.{each}": f"{each}-1" for each in "abc"})
    with airflow_api(airflow, connections), pytest.raises(AirflowRescheduleException):
        run.look()
    assert (airflow.tasks, run.pending, listener.asked) == ([["epoch.a", "epoch.b"]], [2], [0])
    run.finish("a", "b")
    assert run.look()["acks"] == 3
    assert [(at, how) for at, how, _ in listener.told] == [(1, "JOB_FAILOVER_REGION"), (2, "complete")]


def test_without_the_api_a_person_clears(job: Job) -> None:
    run = Run(job, Looking(), deferrable=True)
    with pytest.raises(TaskDeferred) as caught:
        run.look()
    assert caught.value.trigger.serialize()[1]["completes"] is False
    with pytest.raises(AirflowFailException, match=r"epoch\.a \(success\): attempt 2 has to run it again.*Clear them"):
        run.look()


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_listener_that_cannot_tell_holds_nothing_up(job: Job, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The commit finds out the same, and its notice is kept."""
    monkeypatch.setattr(listeners, "DEFAULT_TIMEOUT", timedelta(seconds=60 if how == "fails" else 0.2))
    listener = Looking(fails=how == "fails", hangs=how == "hangs")
    try:
        assert Run(job, listener, deferrable=True).look()["acks"] == 3
    finally:
        listener.go_on.set()
    assert (listener.asked, len(listener.told)) == ([0], 1)


@pytest.mark.parametrize("listener", [Looking(overtaken=0), Listener()])
def test_only_the_task_that_asks_completes_the_checkpoint(job: Job, listener: Listener) -> None:
    """Neither the last stage's task nor the trigger, which have no listeners; where none looks, both may."""
    run = Run(job, listener, deferrable=True)
    looks = isinstance(listener, Looking)
    run.execute("c")
    assert run.pending == ([1] if looks else [])
    if not looks:
        return
    waits = CheckpointTrigger(job.storage, job.name, epoch_name(RUN), poll_interval=0.01, completes=False)
    assert (payload(waits)["status"], run.pending) == ("ready", [1])
    task: Any = run.dag.get_task("epoch.wait_for_checkpoint")
    at = context(Ti(run_id=RUN, task_id=task.task_id, task_states=SUCCESS), task=task)
    assert task.execute_complete(at, {"status": "ready"}, "2100-01-01T00:00:00+00:00")["acks"] == 3
