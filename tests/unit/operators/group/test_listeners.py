"""Listeners through the operators: told by the sensor, the next trigger, the callback and the restore (C4, D4)."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    RestoreLatestCheckpointOperator,
    SparkEpochOperator,
    StageSpec,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.tasks import extensions
from airflow_cairn.tasks.extensions import LISTENERS
from tests.support.airflow_fixtures import Install, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.groups import epoch_group
from tests.support.world.listeners import Listener


def trigger(job: Job, run_id: str, *listeners: Listener) -> dict[str, Any]:
    where: dict[str, Any] = {"storage": job.storage, "job": job.name, "stages": [StageSpec("routes")]}
    operator = TriggerCheckpointOperator(task_id="trigger", reads_window=False, listeners=listeners, **where)
    return operator.execute(context(Ti(run_id=run_id)))


def acknowledged(job: Job, failures: int = 0) -> Listener:
    """Trigger the run r1, and let its stage acknowledge; gives who listens."""
    listener = Listener(failures=failures)
    trigger(job, "r1", listener)
    job.acknowledge(job.begin("r1"))
    return listener


def wait(job: Job, run_id: str, *listeners: Listener) -> Any:
    sensor = CheckpointSensor(task_id="wait", storage=job.storage, job=job.name, deferrable=False, listeners=listeners)
    return sensor.poke(context(Ti(run_id=run_id)))


def waiting(job: Job) -> list[int]:
    return [notice.checkpoint for notice in job.coordinator.head().notices]


def test_the_sensor_tells_when_it_has_completed(job: Job, said: Said) -> None:  # semantics C4
    listener = acknowledged(job)
    assert wait(job, "r1", listener).is_done
    assert listener.told == [(1, "complete", 1)]
    assert waiting(job) == []
    assert "Notified listeners how checkpoints ended: warehouse" in said.text


def test_a_failing_listener_fails_the_sensor_and_is_told_again(job: Job) -> None:  # semantics C4
    listener = acknowledged(job, failures=1)
    with raises_code("listener", match="its notice is kept"):
        wait(job, "r1", listener)
    assert job.coordinator.head().latest_id() == 1, "the checkpoint is complete"
    assert wait(job, "r1", listener).is_done
    assert listener.told == [(1, "complete", 1)]


@pytest.mark.parametrize("failures", [0, 1])
def test_the_next_trigger_tells_what_a_dead_sensor_did_not(job: Job, failures: int, said: Said) -> None:
    """semantics C4: a listener that fails does not hold the trigger up."""
    listener = acknowledged(job, failures)
    job.coordinator.complete(1)  # and the process was killed here
    assert trigger(job, "r2", listener)["checkpoint"] == 2
    assert listener.told == ([] if failures else [(1, "complete", 1)])
    assert waiting(job) == [1] * failures
    assert ("their notices are kept" in said.text) == bool(failures)


def test_a_failed_checkpoint_is_told_by_the_sensor(job: Job) -> None:  # semantics D4
    listener = Listener(failures=1)
    trigger(job, "r1", listener)
    job.coordinator.abort(1, Reason.JOB_FAILURE, "by hand")
    for _ in range(2):
        with pytest.raises(AirflowFailException):
            wait(job, "r1", listener)
    assert listener.told == [(1, "JOB_FAILURE", None)]


def stage(of: Job, *listeners: Listener) -> SparkEpochOperator:
    with epoch_group(storage=of.storage, listeners=listeners):
        return SparkEpochOperator(task_id="routes", application="a.py")


@pytest.mark.parametrize("failures", [0, 1])
def test_the_callback_tells_of_the_attempt_that_it_ended(job: Job, failures: int, said: Said) -> None:
    """semantics D4, F2: a listener that fails in it changes nothing."""
    listener = Listener(failures=failures)
    trigger(job, "r1", listener)
    ti = Ti(run_id="r1")
    job.begin("r1", claimant=str(ti.id))
    restore_latest_checkpoint(context(ti, task=stage(job, listener)))
    assert listener.told == ([] if failures else [(1, "JOB_FAILOVER_REGION", None)])
    assert "attempt 2 opened" in said.text
    assert waiting(job) == [1] * failures


def test_a_restore_by_hand_tells_what_it_aborted(job: Job) -> None:  # semantics D4, R5
    listener = Listener()
    trigger(job, "r1", listener)
    restore = RestoreLatestCheckpointOperator(
        task_id="restore", storage=job.storage, job=job.name, listeners=[listener]
    )
    restore.execute(context(Ti(run_id="repair")))
    assert listener.told == [(1, "CHECKPOINT_COORDINATOR_SUSPEND", None)]


@pytest.mark.parametrize(
    ("listeners", "text"),
    [
        ([Listener(), Listener()], "two listeners have one name"),
        ([Listener], "objects with a name"),
        ([7], "objects with a name"),
        (Listener(), "must be a list"),
    ],
)
def test_what_is_refused_at_parse(listeners: Any, text: str) -> None:  # semantics S3
    with DAG("flights", schedule=None):
        with pytest.raises(InvalidConfigError, match=rf"{text}.*group=`e`"):
            CheckpointedTaskGroup("e", reads_window=False, storage="file:///x", listeners=listeners)
        with pytest.raises(InvalidConfigError, match=rf"{text}.*task=`t`"):
            TriggerCheckpointOperator(
                task_id="t", reads_window=False, storage="file:///x", stages=[StageSpec("a")], listeners=listeners
            )
        with pytest.raises(InvalidConfigError, match=rf"{text}.*task=`w`"):
            CheckpointSensor(task_id="w", storage="file:///x", listeners=listeners)


PLUGGED = """
told = []

class Plugged:
    name = "mail"
    def notify_checkpoint_complete(self, notice):
        told.append(notice.checkpoint)
    def notify_checkpoint_aborted(self, notice):
        raise AssertionError

def of(job):
    return Plugged() if job == "flights" else None
"""


def test_a_listener_of_an_installed_package(job: Job, install: Install) -> None:  # semantics C4
    install(LISTENERS, PLUGGED)
    trigger(job, "r1")
    job.acknowledge(job.begin("r1"))
    wait(job, "r1")
    import plugged_package  # type: ignore[import-not-found]

    assert plugged_package.told == [1]
    other = Job(job.folder, "other")
    trigger(other, "r1")
    assert other.coordinator.head().pending[0].listeners == ()


def test_a_process_looks_through_the_packages_once(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads every package: 8 CPU milliseconds beside Airflow, and a task that triggers asks three times."""
    looks: list[Any] = []

    def look() -> Any:
        looks.append(entry_points())
        return looks[-1]

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(extensions, "entry_points", look)
    trigger(job, "r1")
    trigger(Job(job.folder, "other"), "r1")
    assert len(looks) == 1
